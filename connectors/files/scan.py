"""One pass through the files of a mailbox: folder by folder, file by file, batch by batch. `plan.py` decides what to read."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from connectors.base import Batch, Json, Known, RawMessage
from connectors.errors import first_line
from connectors.files.cursor import FilesCursor, FilesTally, as_json, read
from connectors.files.detect import COMPRESSED, Detected, FileKind
from connectors.files.group import Group
from connectors.files.items import Found, FoundMessage, Remark
from connectors.files.mtime_index import change_time, change_times, compare, is_news
from connectors.files.names import SEPARATOR, shown
from connectors.files.open_file import Changed, OpenFile
from connectors.files.plan import ScanBatch, finish_folder, names_left, outdated_keys, plan_batch, resume_folder
from connectors.files.reading import FileReading
from connectors.files.selection import Roots
from connectors.files.single import SEQUENCES_BYTES, mh_flags
from connectors.files.spool import FileSpool
from connectors.files.tree import FileDirectory
from connectors.files.unpacking import NotMail, UnpackingRefused
from connectors.files.variants import VARIANTS, MboxVariant

_DEPTH_LIMIT = 4
_FAILURES_LIMIT = 1000
_VARIANTS_LIMIT = 200
_NAMES_AT_ONCE = 1000
_ARCHIVES = frozenset({FileKind.ZIP, FileKind.TAR, *COMPRESSED})


@dataclass(slots=True)
class MailboxScan:
    address: str
    turn: str
    roots: Roots
    reading: FileReading
    spool: FileSpool
    known: Known
    state: Mapping[str, Json]
    is_repeated: bool
    """A source that is read again and again; not an import."""
    tally: FilesTally = field(default_factory=FilesTally)
    cursor: FilesCursor = field(default_factory=FilesCursor)
    group: Group = field(default_factory=Group)
    is_fresh: bool = True
    """The next listing is the first of its file."""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name, in an MH folder."""
    outdated: list[str] = field(default_factory=list)
    """Keys of the state that are removed with the first batch."""
    read_whole: list[Remark] = field(default_factory=list)
    """Files that were read to their end; if one of them failed earlier, it no longer counts as failed."""

    def batches(self) -> Iterator[Batch]:
        self.tally = read(FilesTally, self.state, self._key())
        if self.tally.turn != self.turn:
            self.tally = FilesTally(self.turn)
        self.outdated = outdated_keys(self.state, self._key(), self.turn)
        for directory in self.roots.directories(self.address):
            yield from self._directory(directory)

    # --- a folder

    def _directory(self, directory: FileDirectory) -> Iterator[Batch]:
        self.reading.alive()
        stored = read(FilesCursor, self.state, self._key(directory))
        begun = stored.turn == self.turn and stored.identity == directory.identity
        if begun and stored.is_done and (directory.depth or not self.is_repeated):
            return
        try:
            names = self.roots.own_names(directory, self.address)
        except OSError as error:
            self.cursor = FilesCursor(self.turn, directory.identity, is_done=True)
            remark = Remark("/".join((*directory.parts, "")), directory.folder, _unreadable(error), True)
            yield from self._take(directory, remark)
            yield from self._flush(directory)
            return
        if not names and not begun:
            return
        before = stored if begun else None
        changes = None
        if self.is_repeated and not directory.depth and (before is None or before.is_done):
            times = change_times(directory, names)
            changes = compare(names, times, before or FilesCursor(), int(time.time()), is_first=before is None)
        cursor = resume_folder(before, self.turn, directory.identity, changes)
        if cursor is None:
            return
        self.cursor = cursor
        if not self.tally.total_bytes:
            self.tally.total_bytes = max(1, self.roots.bytes(self.address))
        self.flags = _mh(directory, names)
        yield from self._files(directory, names)
        yield from self._flush(directory)
        self.cursor = finish_folder(self.cursor)
        yield Batch(state=self._states(directory))

    def _files(self, directory: FileDirectory, names: list[str]) -> Iterator[Batch]:
        for name in self._unread(directory, names):
            text = shown(name)
            is_same = text == self.cursor.name
            yield from self._file(directory, name, self.cursor.at if is_same else 0, self.cursor.file if is_same else "")
            self.cursor.name, self.cursor.at, self.cursor.file = text, -1, ""
            if self.group.is_full:
                yield from self._flush(directory)

    def _unread(self, directory: FileDirectory, names: list[str]) -> Iterator[str]:
        """Names after the cursor; in a partial round, only files that have changed or may have."""
        left = names_left(names, self.cursor)
        if not self.cursor.is_partial:
            yield from left
            return
        for start in range(0, len(left), _NAMES_AT_ONCE):
            some = left[start : start + _NAMES_AT_ONCE]
            old = {name for name in some if shown(name) != self.cursor.name and not self._is_news(directory, name)}
            passed = self._known_names(directory, old) if self.cursor.is_whole else old
            yield from (name for name in some if name not in passed)

    def _is_news(self, directory: FileDirectory, name: str) -> bool:
        return is_news(self.cursor, change_time(directory, name))

    def _known_names(self, directory: FileDirectory, names: Collection[str]) -> set[str]:
        """For a Maildir, whose files never change: the files that are archived. Any other file has to be read for a
        comparison."""
        self.reading.alive()
        asked = {f"{directory.key_path(name)}{SEPARATOR}": name for name in names if directory.is_maildir and "/" in name}
        return {asked[key] for key in self.known(list(asked))} if asked else set()

    # --- a file

    def _file(self, directory: FileDirectory, name: str, at: int, fingerprint: str) -> Iterator[Batch]:
        path = directory.path / name
        self.reading.alive()
        try:
            if path.is_symlink() and directory.only is None:
                yield from self._take(directory, self._remark(directory, name, "a link, which is not followed", False))
                return
            with OpenFile(path) as file:
                at = at if directory.fingerprint(file) == fingerprint else 0
                found = self.reading.detect(directory, name, file)
                if found.kind in _ARCHIVES:
                    yield from self._archive(directory, name, file, found.kind)
                else:
                    yield from self._mail(directory, name, file, found, at)
                self._finish(file.size)
        except Changed as changed:
            if not self.is_repeated:  # else it is read again in the next round
                said = f"{changed}: what was there is archived; import it again when nothing writes to it"
                yield from self._failed(directory, self._remark(directory, name, said, True))
        except OSError as error:
            if self.is_repeated and isinstance(error, FileNotFoundError):
                return  # moved by a mail program while we read
            yield from self._failed(directory, self._remark(directory, name, _unreadable(error), True))

    def _mail(self, directory: FileDirectory, name: str, file: OpenFile, found: Detected, at: int) -> Iterator[Batch]:
        if found.kind in (FileKind.EMPTY, FileKind.OTHER):
            self._count(found.what if found.kind is FileKind.EMPTY else "not mail")
            yield from self._take(directory, self._remark(directory, name, found.reason, found.is_broken))
            return
        holds_many = found.kind in (FileKind.MBOX, FileKind.BSMTP, FileKind.PST, FileKind.OLM)
        variant = self._variant(directory, name, file, at) if found.kind is FileKind.MBOX else None
        if at == 0:
            self._count(variant.name if variant else _single_name(directory, name, found))
        if holds_many:
            if self.cursor.is_partial:
                yield from self._flush(directory)
            self.is_fresh = at == 0
            self.cursor.name, self.cursor.file, self.cursor.at = shown(name), directory.fingerprint(file), at
            self.cursor.variant = variant.name if variant else ""
        for one in self.reading.messages(directory, name, file, found, variant, at):
            yield from self._take(directory, one, shown(name))
            if isinstance(one, FoundMessage) and not one.is_last:
                continue
            if holds_many and isinstance(one, FoundMessage):
                self.cursor.at = one.next
                self.tally.read_bytes = self.tally.finished_bytes + (one.next if one.read_bytes is None else one.read_bytes)
            if holds_many and self.group.is_full:
                yield from self._flush(directory)
        self.tally.variants.update(self.reading.notes)
        if holds_many:
            self._read_whole(directory, name)
            if self.cursor.is_partial:
                yield from self._flush(directory)

    def _variant(self, directory: FileDirectory, name: str, file: OpenFile, at: int) -> MboxVariant:
        """The variant that was chosen at the start of a file applies to its end."""
        decided = VARIANTS.get(self.cursor.variant) if at and self.cursor.name == shown(name) else None
        if decided is not None:
            return decided
        variant = self.reading.variant(file)
        if len(self.tally.variants) < _VARIANTS_LIMIT:
            self.tally.variants[directory.key_path(name)] = f"{variant.name}: {variant.reason}"
        return variant

    def _read_whole(self, directory: FileDirectory, name: str) -> None:
        self.read_whole.append(self._remark(directory, name, "could not be read before; archived now", False))

    def _archive(self, directory: FileDirectory, name: str, file: OpenFile, kind: FileKind) -> Iterator[Batch]:
        """Unpacked once; then it is a folder like any other. What could not be unpacked is reported at its end."""
        yield from self._flush(directory)
        path = directory.path / name
        if directory.depth >= _DEPTH_LIMIT:
            yield from self._take(
                directory, self._remark(directory, name, f"an archive in {_DEPTH_LIMIT} others: refused", True)
            )
            return
        try:
            unpacked = self.spool.unpack(path, kind, lambda _: self.reading.alive())
        except NotMail as refused:
            self._count("not mail")
            yield from self._take(directory, self._remark(directory, name, f"not mail: {refused}", directory.only is not None))
            return
        except UnpackingRefused as refused:
            self._count("unreadable")
            yield from self._take(directory, self._remark(directory, name, str(refused), True))
            return
        outer = self.cursor
        inner = directory.inside(name, unpacked.folder, directory.fingerprint(file), is_archive=unpacked.is_archive)
        if inner.place not in self.tally.unpacked:
            self.tally.unpacked[inner.place] = unpacked.bytes
            self._count(kind.value)
        for below in inner.below():
            yield from self._directory(below)
        self.cursor, self.flags = outer, _mh(directory, [])
        for member, reason in unpacked.problems:
            yield from self._take(directory, self._remark(directory, name, reason, True, member))
        self._read_whole(directory, name)
        yield from self._flush(directory)
        self.spool.remove_unpacked(path)

    def _remark(self, directory: FileDirectory, name: str, reason: str, is_failure: bool, member: str = "") -> Remark:
        path = directory.key_path(name)
        return Remark(f"{path}/{member}" if member else path, directory.folder, reason, is_failure)

    # --- batches

    def _failed(self, directory: FileDirectory, remark: Remark) -> Iterator[Batch]:
        """Reports a failure after what could be read of the file."""
        yield from self._flush(directory)
        self.cursor.file = ""
        yield from self._take(directory, remark)

    def _take(self, directory: FileDirectory, one: Found, name: str = "") -> Iterator[Batch]:
        if not self.group.fits(one):
            yield from self._flush(directory)
        self.group.add(one)
        if isinstance(one, FoundMessage) and one.data is None:  # sent at once, while its file is open
            if not one.is_last:
                pass
            elif self.cursor.file:
                self.cursor.at = one.next
            else:
                self.cursor.name, self.cursor.at = name, -1
            yield from self._flush(directory)

    def _flush(self, directory: FileDirectory) -> Iterator[Batch]:
        found, self.group = self.group.found, Group()
        read_whole, self.read_whole = self.read_whole, []
        if not found and not read_whole:
            return
        asked = [one.key for one in found if isinstance(one, FoundMessage) and one.rule is None] + [
            one.key for one in read_whole
        ]
        plan = plan_batch(
            found,
            read_whole,
            self.known(asked) if asked else set(),
            self.cursor,
            begun_folders=self.tally.folders,
            is_fresh=self.is_fresh,
            failed_before=self.tally.failures,
        )
        self._tally_batch(found, plan)
        yield Batch(
            messages=tuple(self._raw(one) for one in plan.messages),
            changes=plan.changes,
            skipped=plan.skipped,
            failed=plan.failed,
            listings=plan.listings,
            state=self._states(directory),
        )

    def _tally_batch(self, found: list[Found], plan: ScanBatch) -> None:
        self.tally.found += sum(isinstance(one, FoundMessage) for one in found)
        self.tally.folders.update(dict.fromkeys(plan.begun_folders, 1))
        for failure in plan.failed[: max(0, _FAILURES_LIMIT - len(self.tally.failures))]:
            self.tally.failures[failure.provider_key] = failure.reason
        if plan.listings and self.cursor.file:
            self.is_fresh = False

    def _raw(self, one: FoundMessage) -> RawMessage:
        path = self.spool.write_message(one.pieces()) if one.data is None else None
        flags = self.flags.get(one.key.split("\u241f")[0].rpartition("/")[2], self.flags.get("", ())) if self.flags else ()
        return RawMessage(
            one.key, one.data, path, one.folder, tuple(dict.fromkeys((*one.flags, *flags))), one.labels, one.received_at
        )

    def _states(self, directory: FileDirectory) -> dict[str, Json]:
        outdated, self.outdated = self.outdated, []
        return {**dict.fromkeys(outdated), self._key(directory): as_json(self.cursor), self._key(): as_json(self.tally)}

    def _key(self, directory: FileDirectory | None = None) -> str:
        return f"files:{self.address}:{directory.place}" if directory else f"files:{self.address}"

    def _count(self, kind: str) -> None:
        self.tally.kinds[kind] = self.tally.kinds.get(kind, 0) + 1

    def _finish(self, size: int) -> None:
        self.tally.finished_bytes += size
        self.tally.read_bytes = self.tally.finished_bytes


def _unreadable(error: OSError) -> str:
    return f"can't be read: {first_line(error)}"


def _single_name(directory: FileDirectory, name: str, found: Detected) -> str:
    if found.kind in (FileKind.EMLX, FileKind.BSMTP, FileKind.PST, FileKind.MSG, FileKind.OLM):
        return found.kind.value
    if found.encoding:
        return "eml in UTF-16"
    if directory.is_maildir and "/" in name:
        return "maildir"
    return "mh" if name.isdigit() else "eml"


def _mh(directory: FileDirectory, names: list[str]) -> Mapping[str, tuple[str, ...]]:
    if ".mh_sequences" not in names:
        return {}
    try:
        with (directory.path / ".mh_sequences").open("rb") as file:
            return mh_flags(file.read(SEQUENCES_BYTES))
    except OSError:
        return {}
