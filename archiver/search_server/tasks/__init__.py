"""Changes to indexes: queued as tasks, and processed by a single writer."""
