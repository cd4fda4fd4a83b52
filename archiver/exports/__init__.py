"""Packages of messages for people: a frozen selection, packed in volumes, with a signed manifest that anybody can check."""
