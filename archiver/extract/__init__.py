"""The text of attachments, found in a separate process with limits."""
