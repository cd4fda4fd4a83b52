"""Archiver, a self-hosted email archive.

The words we use, each for one thing:

source       where mail comes from: an IMAP server, a Google or Microsoft tenant, mail files
mailbox      one person's (or group's) mail in a source, known by its address
folder       a place inside a mailbox; labels are folders that a message can have several of
message      the exact bytes of one mail, known by their SHA-256, stored once
copy         one place where a message lies: mailbox + provider key (+ folder, flags, labels)
part         a large MIME part that was cut out of a message and is stored once
pack         an append-only file of at most 256 MiB that holds frames (messages, parts, copies, …)
session      one running sync cycle of a source; it ends as a run
run          the history of a session: what came in, what did not, and why
slice        the stretch of work that a mailbox gets before it gives its place back
outbox       rows that announce work, written in the transaction of the data they announce
dead letter  what failed for good, with everything that is needed to try again
"""

__version__ = "0.1.0"
