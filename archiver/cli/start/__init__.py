"""Commands that install and run Archiver or one of its parts."""
