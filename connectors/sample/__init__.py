"""Lantern Works, a company that makes lamps and does not exist: some years of its mail, the same each time it is made."""
