"""Permanent deletion: deleted mail stays deleted."""
