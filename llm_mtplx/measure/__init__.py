"""Measures the engine: bench, verify and tune."""
