"""The one thread that uses MLX: takes requests, emits events."""
