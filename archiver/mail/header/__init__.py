"""The header of a message or part: from its bytes to names, addresses, dates and text."""
