"""Signing in: passwords, second factors, OpenID Connect, login sessions, and the first administrator."""
