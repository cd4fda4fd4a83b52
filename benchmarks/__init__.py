"""Measurements, each a module that is run on its own."""
