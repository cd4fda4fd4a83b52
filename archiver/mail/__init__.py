"""Parses mail: bytes in, values out. Pure: no database, no network, no clock."""
