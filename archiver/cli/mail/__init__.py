"""Commands that find, show, export and delete mail."""
