"""Erasure on request: carried out, registered for restores, and checked."""
