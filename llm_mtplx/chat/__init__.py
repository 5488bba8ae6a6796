"""Converts messages to token ids, and token ids to text, reasoning and tool calls."""
