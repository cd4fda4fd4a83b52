"""What people add to mail without changing it: tags, notes, and changes of many messages at once."""
