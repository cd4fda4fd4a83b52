"""Archiver, a self-hosted email archive.

The words of the code, each for one thing.

Mail
    source         where mail comes from: an IMAP server, a Google or Microsoft tenant, mail files
    mailbox        the mail of one person or group in a source, identified by its address
    folder         a place in a mailbox; labels are folders of which a message can have several
    message        the exact bytes of one mail, identified by their SHA-256 and stored once
    copy           an occurrence of a message: mailbox + provider key (+ folder, flags, labels)
    provider key   what a source calls a message within a mailbox, such as UIDVALIDITY and UID
    part           a large MIME part that was cut out of a message and is stored once
    variant        another message with the same content but different bytes, such as added header fields
    thread         messages of one conversation

Sync
    connector      the code that reads one kind of source
    batch          messages, changes and a cursor that are stored in one transaction
    cursor         how far a mailbox has been read; the next slice starts there
    cycle          one pass over all mailboxes of a source
    session        a running cycle in the database; it ends as a run (see login session)
    run            the record of a finished session: what was archived, what was not, and why
    slice          the time that a mailbox is read before another mailbox gets its turn
    fence          session and slice number in each write, so that a worker that lost its mailbox can't write
    lease          the exclusive right to work on something for a limited time, which ends with its holder
    ledger         for each folder: what the source listed, less what is archived, skipped, dead or gone
    gap            what remains in the ledger: listed, but neither archived nor explained
    outbox         rows that announce jobs, written in the transaction of the data they announce
    workflow       a job of several steps, which are rows: it continues after a crash, and rolls back what it did if it fails
    dead letter    what failed permanently, with everything that is needed to retry it

Store
    pack           an append-only file of at most 256 MiB
    frame          the unit of a pack: one message, part, text, journal entry, … compressed and encrypted
    object         the content of a frame that is found by its SHA-256: a message, part, text or dictionary
    segment        consecutive frames of a pack that one process verifies or rebuilds
    seal           the last bytes of a finished pack, with a keyed digest
    sealed value   a secret in the database, encrypted with ENCRYPTION_KEY and bound to its row
    journal        the frames that record what happened: occurrences, changes, tombstones, snapshots of settings
    tombstone      the journal entry of a deletion; it counts once it is confirmed
    generation     number of the database that wrote a journal entry; it rises with each rebuild, restore or adoption
    adopt          to add to the database what the packs contain beyond it
    room           free space for more bytes; NoRoom asks the caller to come back later

Retention
    hold           mail that nothing may delete: mailboxes, people, a query, single messages
    policy         how long mail is kept at least, and when it is deleted; changed by versions only
    receipt        the signed record of a run that deleted mail, or of an erasure
    erasure        the removal of a person's mail on request, from the packs too
    unit           a message in one mailbox, which is what a deletion deletes

Access
    user           a person who can sign in
    principal      who acts in a request: a user, an API key, or the local operator on the command line
    right          what a principal can do at all: read, search, export, …
    grant          the permission of one user to read a mailbox, an address pattern or a source
    mail scope     the mailboxes that a principal can see
    key scope      what an API key can be used for; it limits the rights of its owner
    login session  a signed-in browser (the table `sessions`)
    audit log      who did what, as a chain of hashes
    anchor         the head of the audit log, stored outside the database

Running
    stack part     one process of the stack: postgres, valkey, search, ingestion, indexing, web
    stack          all processes that run on one data folder
    area           a package of `archiver` that owns its SQL, its functions and its words
"""

import sys
from pathlib import Path

__version__ = "0.1.0"

# In a wheel, the packages beside this one are below it (setup.py). They come first: other programs have such names, too.
if (_bundled := Path(__file__).with_name("bundled")).is_dir():
    sys.path.insert(0, str(_bundled))
