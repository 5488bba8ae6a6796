"""The engine in another process: its socket, its protocol and its lifetime."""
