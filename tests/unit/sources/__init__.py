"""Sources, without a database."""
