"""The command line. `main` turns errors into one line and an exit code; each command has a module of its own."""

from archiver.cli.app import main

__all__ = ["main"]
