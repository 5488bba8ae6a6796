"""What the model has read already, kept for the next turn."""
