"""Worker processes: `python -m workers ingestion` and `python -m workers indexing`."""
