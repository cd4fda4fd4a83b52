"""The handlers of the HTTP API, one module per noun, and the table of all routes."""
