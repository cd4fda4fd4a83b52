"""SMTP journaling with a database, a real Postfix, and processes that are killed."""
