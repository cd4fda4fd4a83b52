"""What the commands share: opening the archive, printing, progress, `--wait`, the time zone."""
