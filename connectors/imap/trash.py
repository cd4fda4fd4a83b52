"""Moves messages of an account to its trash. A server that can't move single messages safely is refused."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from connectors.base import Context
from connectors.errors import Unavailable
from connectors.imap.connector import ImapConnector
from connectors.imap.errors import CommandRefused, Dropped, FolderClosed, FolderGone, throttling
from connectors.imap.folders import ImapFolder
from connectors.imap.keys import Wanted, folder_part, parse_key
from connectors.imap.plan import wanted_folders
from connectors.imap.refetching import ImapRefetch
from connectors.imap.session import ImapSession
from connectors.imap.settings import ImapSecrets, ImapSettings
from connectors.imap.uids import Uids
from connectors.imap.wire import quoted
from connectors.selection import FolderRole


class ImapTrash:
    def __init__(self, settings: ImapSettings, secrets: ImapSecrets, context: Context, address: str) -> None:
        self._settings, self._context = settings, context
        self._connector = ImapConnector(settings, secrets, context)
        self._session = ImapSession(lambda: self._connector.open_wire(address), context, threading.Event())

    def move(self, keys: Sequence[str]) -> set[str]:
        try:
            return self._move({key: parsed for key in keys if (parsed := parse_key(key))})
        except Dropped as dropped:
            raise throttling(dropped.code, dropped.said) or Unavailable(str(dropped)) from dropped
        except (CommandRefused, FolderGone, FolderClosed) as refused:
            raise Unavailable(f"the server refused: {refused}") from refused

    def close(self) -> None:
        self._session.closed.set()
        self._session.close_all()
        self._connector.close()

    def _move(self, wanted: dict[str, Wanted]) -> set[str]:
        folders = self._session.folders()
        trash = next((folder for folder in folders if folder.role is FolderRole.TRASH), None)
        if trash is None:
            raise Unavailable("the account has no folder for deleted mail: create one named Trash")
        if not {"MOVE", "UIDPLUS"} & self._session.wire.capabilities:
            raise Unavailable(
                "the server can't move single messages (neither MOVE nor UIDPLUS): delete them with a mail program"
            )
        moved: set[str] = set()
        finder = ImapRefetch(self._session, self._settings, self._context)
        for folder in wanted_folders(folders, self._session.wire.capabilities, self._settings):
            names = ("", folder_part(folder.name))
            here = {key: one for key, one in wanted.items() if key not in moved and one.folder in names}
            if here and folder.raw != trash.raw:
                asker, uids = finder.locate(folder, here)
                moved |= self._move_from(folder, trash, asker.validity, uids)
        return moved

    def _move_from(self, folder: ImapFolder, trash: ImapFolder, validity: int, uids: dict[int, str]) -> set[str]:
        if not uids:
            return set()
        wire = self._session.wire
        if self._session.select(folder).uid_validity != validity:
            raise Unavailable(f"the server renumbered {folder.name} in this moment")
        there = [uid for uid in self._session.search(b"UID " + Uids.of(sorted(uids)).encoded()) if uid in uids]
        if not there:
            return set()
        which, to = Uids.of(there).encoded(), quoted(trash.raw)
        if "MOVE" in wire.capabilities:
            wire.run(b"UID MOVE " + which + b" " + to)
        else:  # RFC 4315: EXPUNGE of these messages alone, never of others that are marked as deleted
            wire.run(b"UID COPY " + which + b" " + to)
            wire.run(b"UID STORE " + which + b" +FLAGS.SILENT (\\Deleted)")
            wire.run(b"UID EXPUNGE " + which)
        if any(self._session.search(b"UID " + which)):
            raise Unavailable(f"the server confirmed the move, but messages are still in {folder.name}")
        return {uids[uid] for uid in there}
