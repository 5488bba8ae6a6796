"""The networks: layers, state, MTP head and weights, and all that mlx-lm is relied on for."""
