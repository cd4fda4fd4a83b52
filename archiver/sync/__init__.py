"""Sessions, mailboxes and the outbox: how a sync cycle keeps its place."""
