"""The query language: from typed text (parser) to equivalent searches (compiler). Pure."""
