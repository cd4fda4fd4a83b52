"""Maintenance of the archive: verify, rebuild, compact, back up, restore, and health checks."""
