"""The text of a message: from plain text or HTML to what is searched and shown."""
