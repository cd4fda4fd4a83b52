"""Who can do what: users, rights, grants, API keys, and the audit log."""
