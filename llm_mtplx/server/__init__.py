"""The engine for programs that speak to OpenAI or Anthropic. Needs ``llm-mtplx[server]``."""

from .app import create_app

__all__ = ["create_app"]
