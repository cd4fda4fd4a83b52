"""Bytes of a mail in, values out. Pure: no database, no network, no clock."""
