"""Connectors: where mail comes from. One package per kind; nothing in here imports the rest of the product."""
