"""Changes to indexes: queued as tasks, and worked off by a single writer."""
