"""The query language: from what a person typed (parser) to searches that mean the same (compiler). Pure."""
