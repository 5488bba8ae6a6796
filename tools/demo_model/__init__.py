"""How the bundled demo model was made: its text, its training, its evaluation. Not in the wheel."""
