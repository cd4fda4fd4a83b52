"""The sync engine: sessions, mailboxes, slices and the outbox, and how a cycle survives an interruption."""
