"""Parses mail in child processes, which have limits on time and memory and can be killed."""
