"""Searches: from a request to matching documents, ranked, sorted, counted and formatted."""
