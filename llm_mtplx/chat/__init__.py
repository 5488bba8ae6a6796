"""Messages to token ids, and token ids back to text and reasoning."""
