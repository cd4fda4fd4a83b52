"""`python -m archiver` is the command line."""

from archiver.cli import main

main()
