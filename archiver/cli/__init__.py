"""The command line. `main` turns errors into one line and an exit code; everything else is in a module per command."""

from archiver.cli.app import main

__all__ = ["main"]
