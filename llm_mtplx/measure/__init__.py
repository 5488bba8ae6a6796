"""bench, verify and tune: what runs above the engine to measure it."""
