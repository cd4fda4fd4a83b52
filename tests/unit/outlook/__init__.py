"""Outlook items as messages."""
