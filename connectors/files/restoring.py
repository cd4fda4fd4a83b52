"""Gives the messages of one of Archiver's own exports back their copies: each with its folder, flags and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from connectors.files.exported_copies import CopyPlace, ExportedCopies
from connectors.files.items import FoundMessage
from connectors.files.names import SEPARATOR


@dataclass(frozen=True, slots=True)
class RestoredCopies:
    exported: ExportedCopies
    address: str | None
    """Only the copies of this mailbox; None: of all, into one."""

    @property
    def is_used(self) -> bool:
        return bool(self.exported.mailboxes)

    def copies(self, found: FoundMessage, sha256: bytes, rule: Callable[[str], str | None]) -> Iterator[FoundMessage]:
        """The message itself, if no manifest knows its bytes."""
        known = self.exported.places(sha256)
        if not known:
            yield found
            return
        places = [place for place in known if self.address in (None, place.mailbox)]
        for number, place in enumerate(places):
            folder = self._folder(place)
            yield replace(
                found,
                key=f"{found.key}{SEPARATOR}{number}" if number else found.key,
                folder=folder,
                flags=place.flags,
                labels=place.labels,
                received_at=place.received_at,
                rule=rule(folder),
                is_last=number == len(places) - 1,
            )

    def _folder(self, place: CopyPlace) -> str:
        """Several mailboxes in one are told apart by their addresses."""
        if self.address is None and len(self.exported.mailboxes) > 1:
            return f"{place.mailbox}/{place.folder}"
        return place.folder
