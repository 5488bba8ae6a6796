"""One thread owns MLX; prompts come in as requests and go out as events."""
