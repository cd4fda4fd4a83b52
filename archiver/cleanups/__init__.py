"""Clean-up at the source: archived mail is moved to the server's trash, to make room there. Never by itself."""
