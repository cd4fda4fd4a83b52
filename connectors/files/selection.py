"""The files and folders that the user named, and which mailbox each belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors.errors import Unavailable
from connectors.files.detect import COMPRESSED, HEAD_BYTES, FileKind, detect
from connectors.files.exported_copies import ExportedCopies, is_own_file, is_volume
from connectors.files.names import shown, stem
from connectors.files.open_file import OpenFile
from connectors.files.settings import FOLDER, FilesSettings
from connectors.files.tree import FileDirectory, roots_of

_ONE_OWNER = frozenset({FileKind.MBOX, FileKind.PST, FileKind.OLM, FileKind.ZIP, FileKind.TAR, *COMPRESSED})
_NUMBERED = re.compile(r"^([^\s@]++@(?:[^\s@.]++\.)++[A-Za-z]{2,63})-[\w-]+$")
"""An address and what a program has added to it, as in `alice@example.org-Xy12.mbox` of Google Vault."""
_UNFIT = re.compile(r"[\s@,;<>()\"]+")


@dataclass(frozen=True, slots=True)
class Roots:
    settings: FilesSettings
    exported: Callable[[], ExportedCopies]
    """What the manifests of our own exports among the files say."""

    def check(self) -> None:
        """Raises Unavailable if one is missing. What in them can't be read is reported when it is read."""
        for _ in self._roots():
            pass

    @property
    def is_pattern(self) -> bool:
        return FOLDER in self.settings.mailbox

    def addresses(self) -> list[str]:
        """One address or, with a pattern, one for each top folder."""
        if not self.is_pattern:
            return [self.settings.mailbox.lower()]
        found = dict.fromkeys(self._exported_mailboxes())
        for root in self._roots():
            try:
                names = root.names() if root.only is not None else sorted(entry.name for entry in root.path.iterdir())
            except OSError as error:
                raise _unreadable(root.path, error) from error
            for name in names:
                if found and (is_volume(name) or is_own_file(name)):
                    continue  # its messages belong to the mailboxes that its manifest names
                is_folder = (root.path / name).is_dir()
                found[self._address(shown(name) if is_folder else self._top_of_file(root, name))] = None
        return list(found)

    def directories(self, address: str) -> Iterator[FileDirectory]:
        """The directories of all roots that belong to this mailbox, in order."""
        for root in self._roots():
            for directory in root.below():
                if directory.top is None or self._address(directory.top) == address:
                    yield directory

    def own_names(self, directory: FileDirectory, address: str) -> list[str]:
        """The files of a folder that belong to this mailbox. Raises OSError."""
        names = directory.names()
        if directory.top is not None or not self.is_pattern:
            return names
        if address in self._exported_mailboxes():
            return [name for name in names if is_volume(name) or self._is_own(directory, name, address)]
        return [name for name in names if self._is_own(directory, name, address)]

    def _is_own(self, directory: FileDirectory, name: str, address: str) -> bool:
        return self._address(self._top_of_file(directory, name)) == address

    def _exported_mailboxes(self) -> tuple[str, ...]:
        """With the pattern `{folder}` alone, an export goes back to the mailboxes it is from."""
        return self.exported().mailboxes if self.settings.mailbox == FOLDER else ()

    def bytes(self, address: str) -> int:
        total = 0
        for directory in self.directories(address):
            try:
                for name in self.own_names(directory, address):
                    total += (directory.path / name).lstat().st_size
            except OSError:
                continue
        return total

    def _roots(self) -> Iterator[FileDirectory]:
        for path in self.settings.paths:
            try:
                path.stat()
            except OSError as error:
                raise _unreadable(path, error) from error
        yield from roots_of(self.settings.paths)

    def _top_of_file(self, directory: FileDirectory, name: str) -> str:
        """A file of many messages has an owner of its own; a single message belongs to the owner of its folder."""
        try:
            with OpenFile(directory.path / name) as file:
                if detect(file.read(0, HEAD_BYTES), name).kind in _ONE_OWNER:
                    return stem(shown(name))
        except (OSError, ValueError):
            pass
        return directory.root

    def _address(self, top: str) -> str:
        if not self.is_pattern:
            return self.settings.mailbox.lower()
        if self.settings.mailbox == FOLDER and "@" in top:
            return _NUMBERED.sub(r"\1", top.strip()).lower()
        text = _UNFIT.sub(".", top).strip(".") or "folder"
        return self.settings.mailbox.replace(FOLDER, text).lower()


def _unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{shown(str(path))} can't be read: {error.strerror}")
