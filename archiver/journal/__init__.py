"""SMTP journaling: mail servers send a copy of each message, and get 250 once it is durable; delivery follows."""
