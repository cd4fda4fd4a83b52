"""Commands that say who may do what, what is kept for how long, and who did what."""
