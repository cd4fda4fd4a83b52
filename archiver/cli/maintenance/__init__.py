"""Commands that maintain the store, the index and their copies."""
