"""Decides which folders are read, from where, and what of a window is fetched. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connectors.imap.cursor import ImapCursor
from connectors.imap.folders import ImapFolder, Status
from connectors.imap.keys import DOVECOT, kind_of_ids
from connectors.imap.message import Meta
from connectors.imap.settings import ImapSettings
from connectors.selection import FolderRole


def wanted_folders(listed: Sequence[ImapFolder], capabilities: frozenset[str], settings: ImapSettings) -> list[ImapFolder]:
    """Gmail shows a message in each of its labels, so there only All Mail is read, which has everything but spam and trash."""
    everything = next((folder for folder in listed if "\\all" in folder.attributes), None)
    if "X-GM-EXT-1" not in capabilities or not settings.gmail_labels or everything is None:
        return list(listed)
    return [everything, *(folder for folder in listed if folder.role in (FolderRole.SPAM, FolderRole.TRASH))]


def chosen_ids(cursor: ImapCursor, capabilities: frozenset[str], server_name: str) -> str:
    """What the keys of a folder are built from. It changes only if necessary, because other keys mean other messages."""
    best = kind_of_ids(capabilities, server_name)
    kept = cursor.ids in ("", best) or (cursor.ids == DOVECOT and "dovecot" in server_name.lower())
    return cursor.ids if cursor.validity and kept else best


def start_cursor(cursor: ImapCursor, opened: Status, rules: str, capabilities: frozenset[str], server_name: str) -> ImapCursor:
    """A folder starts over if its UIDVALIDITY or the rules have changed (RFC 9051, section 2.3.1.1)."""
    if (cursor.validity, cursor.rules) == (opened.uid_validity, rules):
        return cursor
    same = cursor if cursor.validity == opened.uid_validity else ImapCursor()
    return ImapCursor(validity=opened.uid_validity, rules=rules, ids=chosen_ids(same, capabilities, server_name))


def needs_listing(cursor: ImapCursor, opened: Status, new: int, day: int) -> bool:
    """All UIDs are listed the first time, once a day, and when the counts differ: then messages were deleted, or appeared
    below our position."""
    return cursor.count < 0 or cursor.day != day or opened.messages != cursor.count + new


def finish_cursor(cursor: ImapCursor, opened: Status, last_uid: int, count: int) -> ImapCursor:
    """The cursor after a whole pass. UIDNEXT and HIGHESTMODSEQ are those from before it: what arrives or changes during the
    pass is seen by the next."""
    return ImapCursor(
        validity=opened.uid_validity,
        uid=last_uid,
        count=count,
        uid_next=opened.uid_next or 0,
        modseq=opened.modseq or 0,
        rules=cursor.rules,
        ids=cursor.ids,
        day=cursor.day,
    )


def once_each(metas: Sequence[Meta], known: Collection[str]) -> dict[int, Meta]:
    """The unknown messages by UID, in order. One key is one message, even if the server shows it twice."""
    once = {meta.key: meta for meta in reversed(metas) if meta.key not in known}
    return {meta.uid: meta for meta in sorted(once.values(), key=lambda meta: meta.uid)}
