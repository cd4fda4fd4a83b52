"""Alerts: rules that find what is wrong, their state in Postgres, and the channels that notify people."""
