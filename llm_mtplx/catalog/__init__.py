"""Which models exist and what a model folder holds. Imports no MLX."""
