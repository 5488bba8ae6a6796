"""The store's index: its database, its rows, what needs what."""
