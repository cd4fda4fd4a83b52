"""Server-rendered pages over the same services as the API. Reading and searching work without JavaScript."""
