"""Restores: archived mail goes back into mailboxes, after a dry run, with a report."""
