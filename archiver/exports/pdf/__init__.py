"""Messages as PDF files: header, text, inline pictures and a list of attachments, set by typst in a confined child."""
