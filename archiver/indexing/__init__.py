"""Turns stored messages into search documents."""
