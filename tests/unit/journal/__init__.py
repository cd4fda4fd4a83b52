"""SMTP journaling, without a database."""
