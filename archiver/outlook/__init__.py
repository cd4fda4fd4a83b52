"""Outlook's files as mail: PST, OST and MSG.

They hold properties (MAPI), not messages. `mime.py` builds one message from the properties of an item, and the same bytes from
the same properties each time. Everything that reads a file runs in a confined child process (`child.py`); `reader.py` is the
side of its parent.
"""
