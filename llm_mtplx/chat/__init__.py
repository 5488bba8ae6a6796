"""Messages to token ids, and token ids back to text, reasoning and tool calls."""
