"""Sessions in RAM: finds the longest prefix of a prompt that was processed before."""
