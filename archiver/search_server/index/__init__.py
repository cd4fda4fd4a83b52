"""The indexes: their settings, their documents, and the Tantivy index of each."""
