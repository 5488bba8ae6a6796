"""Which models exist, what a model folder contains, and downloads. Imports no MLX."""
