"""Measurements on real mail: ratios on one machine, never a timed test."""
