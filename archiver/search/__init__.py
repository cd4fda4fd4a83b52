"""Search: the Meilisearch client, the documents, the query language, and searching within a reader's scope."""
