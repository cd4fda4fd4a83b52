"""Reads and exports archived mail, limited to what a reader may see."""
