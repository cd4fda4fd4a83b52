"""Proof that the audit log was not changed: anchors outside the database."""
