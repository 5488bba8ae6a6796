"""The store's upkeep: what goes, when, and how it is removed."""
