"""The engine of another process: where it listens, how to reach it, how it lives."""
