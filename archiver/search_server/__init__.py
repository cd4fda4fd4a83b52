"""A small server that speaks Meilisearch's HTTP API, with Tantivy as its engine. Nothing outside knows of Tantivy."""
