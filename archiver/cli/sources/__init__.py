"""Commands that bring mail in: sources, imports, sign-in at a provider."""
