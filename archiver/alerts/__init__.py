"""Alerts: rules that find what is wrong, their state in Postgres, and the channels through which people are told."""
