"""Mail files as a source: a connector like any other."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping

from connectors.base import BATCH_MESSAGES, Batch, Context, Json, Known, MailboxRef, Skipped
from connectors.batching import Packer
from connectors.errors import Unavailable
from connectors.files.exported_copies import ExportedCopies, find_manifests
from connectors.files.reading import FileReading
from connectors.files.refetching import Refetching
from connectors.files.restoring import RestoredCopies
from connectors.files.scan import MailboxScan
from connectors.files.selection import Roots
from connectors.files.settings import FilesSettings, ImportSettings
from connectors.files.spool import FileSpool
from connectors.files.tree import roots_of
from connectors.selection import mailbox_rule, rules_digest


class FilesConnector:
    def __init__(self, settings: FilesSettings, context: Context) -> None:
        self._settings, self._context = settings, context
        self._roots = Roots(settings, self._open_copies)
        self._copies: ExportedCopies | None = None
        self._closed = threading.Event()
        self._spools: list[FileSpool] = []

    def check(self) -> None:
        self._check_open()
        self._roots.check()

    def mailboxes(self) -> Iterator[MailboxRef]:
        self._check_open()
        for address in self._roots.addresses():
            if mailbox_rule(self._settings, address) is None:
                yield MailboxRef(address)

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        address, spool = self._open(box)
        is_repeated = not isinstance(self._settings, ImportSettings)
        scan = MailboxScan(address, self._turn(), self._roots, self._reading(address, spool), spool, known, state, is_repeated)
        try:
            for batch in scan.batches():
                self._check_open()
                yield batch
        except sqlite3.Error as error:  # most likely a full disk, not a fault of the files
            raise Unavailable(f"{spool.path} can't be used: {error}") from error

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        address, spool = self._open(box)
        packer = Packer(BATCH_MESSAGES)
        for got in Refetching(address, self._roots, self._reading(address, spool), spool, keys).fetch():
            if isinstance(got, Skipped):
                packer.skip(got)
                continue
            if not packer.room_for(got):
                yield packer.take()
            packer.put(got)
        if not packer.empty:
            yield packer.take()

    def close(self) -> None:
        self._closed.set()
        for spool in self._spools:
            spool.close()
        if self._copies is not None:
            self._copies.close()

    def _open_copies(self) -> ExportedCopies:
        if self._copies is None:
            manifests = find_manifests(roots_of(self._settings.paths))
            self._copies = ExportedCopies(self._context.scratch_path() / "files" / "exported", manifests)
        return self._copies

    def _open(self, box: MailboxRef) -> tuple[str, FileSpool]:
        self._check_open()
        address = box.address.lower()
        if address not in self._roots.addresses():
            raise Unavailable(f"these files no longer contain mail of {address}")
        owner = hashlib.sha256(f"{address}:{self._settings.model_dump_json()}".encode()).hexdigest()[:16]
        spool = FileSpool(self._context.scratch_path() / "files", owner, self._context.least_free_bytes)
        spool.prepare()
        self._spools.append(spool)
        return address, spool

    def _reading(self, address: str, spool: FileSpool) -> FileReading:
        restored = RestoredCopies(self._open_copies(), address if self._roots.is_pattern else None)
        return FileReading(self._settings, spool.path, self._report_progress, self._context.open_outlook, restored)

    def _turn(self) -> str:
        """Under other rules, or in another import, everything is read again."""
        number = self._settings.number if isinstance(self._settings, ImportSettings) else 0
        return f"{rules_digest(self._settings)}:{self._settings.include_deleted:d}:{self._settings.kind}:{number}"

    def _report_progress(self) -> None:
        self._check_open()
        self._context.progress()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the connector was closed while it read the files")
        if self._context.should_stop():
            raise Unavailable("the worker is stopping")
