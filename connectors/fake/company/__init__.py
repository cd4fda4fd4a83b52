"""Lantern Works, a fictional maker of lamps: several years of its mail, identical each time it is generated."""
