"""A second copy of the archive, and the ways back from it."""
