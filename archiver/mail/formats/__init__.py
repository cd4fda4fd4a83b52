"""Formats inside messages: TNEF, RTF, S/MIME, PGP, calendars, delivery reports, uuencode."""
