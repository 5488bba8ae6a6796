"""The networks: layers, state, MTP head and loading weights. All use of mlx-lm is here."""
