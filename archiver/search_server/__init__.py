"""A small server with Meilisearch's HTTP API and Tantivy as its engine. No other package uses Tantivy."""
