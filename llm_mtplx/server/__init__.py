"""The OpenAI- and Anthropic-compatible server. Needs `llm-mtplx[server]`."""

from .app import create_app

__all__ = ["create_app"]
