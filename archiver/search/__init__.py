"""The search index: the Meilisearch client, the documents, and the embedded server."""
