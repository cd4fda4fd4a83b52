"""PST and OST: folders and items, found by their node numbers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from ctypes import byref, c_int, c_size_t, c_uint64
from dataclasses import dataclass
from typing import Any

from archiver.outlook import properties as tags
from archiver.outlook.items import (
    ALL_KINDS,
    ATTACHMENTS,
    KIND_BITS,
    ORPHANED,
    PIECE_BYTES,
    PROPERTY_BYTES,
    RECIPIENTS,
    RECOVERED,
    OutlookFileBroken,
)
from archiver.outlook.libpff import PffError, PffFile, call, count, entries, free, handle, number, read_data, row
from archiver.outlook.properties import WANTED, PropertySet

_FOLDERS = 100_000
_FOLDER_DEPTH = 100
_FOLDER_BYTES = 1 << 20
_EMBEDDED = 5
_BY_REFERENCE = frozenset({2, 3, 4, 7})
_RECIPIENT = (tags.DISPLAY_NAME, tags.SMTP_ADDRESS, tags.ADDRESS)


class Handle:
    """An item of libpff, freed when nothing refers to it any more."""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self.pointer = pointer

    def __del__(self) -> None:
        free("item", self.pointer)


@dataclass(frozen=True, slots=True)
class PstFolder:
    path: tuple[str, ...]
    node: int
    """0: items that are in no folder."""
    items: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class PstContext:
    """What all items of a file share."""

    codepage: int
    names: dict[int, int]

    def read(self, held: Handle) -> PropertySet:
        try:
            return PropertySet(entries(held.pointer, self.names, WANTED.__contains__, PROPERTY_BYTES), self.codepage)
        except PffError as error:
            raise OutlookFileBroken(f"its properties can't be read: {error}") from error


class PstAttachment:
    def __init__(self, held: Handle, context: PstContext) -> None:
        self._held, self._context = held, context
        self.properties = context.read(held)

    def pieces(self) -> Iterator[bytes]:
        if self.properties.number(tags.METHOD) in (_EMBEDDED, *_BY_REFERENCE):
            return
        size = c_uint64()
        try:
            call("attachment_get_data_size", self._held.pointer, byref(size))
            if size.value:
                read_data("attachment_data_seek_offset", self._held.pointer, ctypes.c_int64(0), c_int(os.SEEK_SET))
            yield from self._read(size.value)
        except PffError as error:
            raise OutlookFileBroken(f"an attachment can't be read: {error}") from error

    def _read(self, left: int) -> Iterator[bytes]:
        buffer = ctypes.create_string_buffer(min(left, PIECE_BYTES) or 1)
        pending = b""
        while left > 0:
            got = read_data("attachment_data_read_buffer", self._held.pointer, buffer, c_size_t(min(left, len(buffer))))
            if not got:
                raise OutlookFileBroken(f"an attachment ends {left:,} bytes early")
            left -= got
            pending += buffer.raw[:got]
            while len(pending) >= PIECE_BYTES:
                yield pending[:PIECE_BYTES]
                pending = pending[PIECE_BYTES:]
        if pending:
            yield pending

    def item(self) -> PstItem | None:
        if self.properties.number(tags.METHOD) != _EMBEDDED:
            return None
        found = _guarded_handle("attachment_get_item", self._held.pointer)
        if isinstance(found, str):
            raise OutlookFileBroken(f"an attached message can't be read: {found}")
        return PstItem(Handle(found), self._context) if found is not None else None


class PstItem:
    def __init__(self, held: Handle, context: PstContext) -> None:
        self._held, self._context = held, context
        self.node = number("item_get_identifier", held.pointer)
        self.properties = context.read(held)

    def recipients(self, kinds: Collection[int] = ALL_KINDS) -> Sequence[PropertySet]:
        """A message may have thousands, and its header usually names most of them: those are not read."""
        try:
            found = handle("message_get_recipients", self._held.pointer)
            if found is None:
                return ()
            table = Handle(found)
            rows = range(min(count("item_get_number_of_record_sets", found), RECIPIENTS))
            return [one for index in rows if (one := self._recipient(table, index, kinds)) is not None]
        except PffError:
            return ()

    def _recipient(self, table: Handle, index: int, kinds: Collection[int]) -> PropertySet | None:
        codepage = self._context.codepage
        kind = row(table.pointer, index, (tags.RECIPIENT_TYPE,), PROPERTY_BYTES)
        if PropertySet(kind).number(tags.RECIPIENT_TYPE) & KIND_BITS not in kinds:
            return None
        return PropertySet({**kind, **row(table.pointer, index, _RECIPIENT, PROPERTY_BYTES)}, codepage)

    def attachments(self) -> Sequence[PstAttachment]:
        try:
            amount = min(count("message_get_number_of_attachments", self._held.pointer), ATTACHMENTS)
        except PffError as error:
            raise OutlookFileBroken(f"the attachments can't be read: {error}") from error
        return [self._attachment(index) for index in range(amount)]

    def _attachment(self, index: int) -> PstAttachment:
        try:
            found = handle("message_get_attachment", self._held.pointer, c_int(index))
            if found is None:
                raise PffError("it is missing")
            return PstAttachment(Handle(found), self._context)
        except PffError as error:
            raise OutlookFileBroken(f"attachment {index + 1} can't be read: {error}") from error


class PstFile:
    """Raises OutlookFileBroken if it can't be opened at all."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._file = PffFile(descriptor)
            self._context = PstContext(self._file.codepage, {})
        except PffError as error:
            raise OutlookFileBroken(str(error)) from error
        self._open_folder: tuple[int, Handle] | None = None

    @property
    def is_damaged(self) -> bool:
        try:
            return self._file.is_damaged()
        except PffError:
            return True

    def folders(self, recover: bool) -> Iterator[PstFolder]:
        """Depth first, always in the same order; then what is in no folder."""
        top = self._top_node()
        try:
            root = handle("file_get_root_folder", self._file.pointer)
        except PffError as error:
            yield PstFolder((), 0, 0, f"the root folder can't be read: {error}")
            root = None
        if root is not None:
            yield from self._below(Handle(root), (), top, set())
        for name, function in self._loose(recover):
            try:
                yield PstFolder((name,), 0, count(function, self._file.pointer))
            except PffError as error:
                yield PstFolder((name,), 0, 0, f"they can't be listed: {error}")

    def _loose(self, recover: bool) -> Iterator[tuple[str, str]]:
        yield ORPHANED, "file_get_number_of_orphan_items"
        if recover:
            try:
                self._file.recover()
            except PffError:
                return
            yield RECOVERED, "file_get_number_of_recovered_items"

    def _below(self, held: Handle, path: tuple[str, ...], top: int, seen: set[int]) -> Iterator[PstFolder]:
        node = number("item_get_identifier", held.pointer)
        if node in seen or len(seen) > _FOLDERS or len(path) > _FOLDER_DEPTH:
            return
        seen.add(node)
        path = () if node == top else (*path, *_folder_name(held, self._context.codepage))
        items = _guarded(lambda: count("folder_get_number_of_sub_messages", held.pointer))
        children = _guarded(lambda: count("folder_get_number_of_sub_folders", held.pointer))
        error = next((f"can't be read: {value}" for value in (items, children) if isinstance(value, str)), "")
        yield PstFolder(path, node, items if isinstance(items, int) else 0, error)
        for index in range(children if isinstance(children, int) else 0):
            child = _guarded_handle("folder_get_sub_folder", held.pointer, c_int(index))
            if isinstance(child, str):
                yield PstFolder((*path, f"folder {index + 1}"), 0, 0, f"can't be read: {child}")
            elif child is not None:
                yield from self._below(Handle(child), path, top, seen)

    def item(self, folder: PstFolder, index: int) -> PstItem:
        """Raises OutlookFileBroken if this item can't be read."""
        try:
            found = self._find(folder, index)
            if found is None:
                raise PffError("it is missing")
            return PstItem(Handle(found), self._context)
        except PffError as error:
            raise OutlookFileBroken(str(error)) from error

    def _find(self, folder: PstFolder, index: int) -> ctypes.c_void_p | None:
        if not folder.node:
            kind = "recovered" if folder.path == (RECOVERED,) else "orphan"
            return handle(f"file_get_{kind}_item_by_index", self._file.pointer, c_int(index))
        if self._open_folder is None or self._open_folder[0] != folder.node:
            found = self._file.item(folder.node)
            if found is None:
                raise PffError("its folder is missing")
            self._open_folder = folder.node, Handle(found)
        return handle("folder_get_sub_message", self._open_folder[1].pointer, c_int(index))

    def _top_node(self) -> int:
        """The folder that holds what users see. Its own name is internal to Outlook, and not shown."""
        store = _guarded_handle("file_get_message_store", self._file.pointer)
        if store is None or isinstance(store, str):
            return 0
        try:
            entry = self._context.read(Handle(store)).raw(tags.IPM_SUBTREE)
        except OutlookFileBroken:
            return 0
        return int.from_bytes(entry[20:24], "little")


def _folder_name(held: Handle, codepage: int) -> tuple[str, ...]:
    try:
        found = row(held.pointer, 0, (tags.DISPLAY_NAME,), _FOLDER_BYTES)
    except PffError:
        return ("unnamed",)
    name = PropertySet(found, codepage).text(tags.DISPLAY_NAME).replace("/", "_").strip()
    return (name,) if name else ()


def _guarded(value: Callable[[], int]) -> int | str:
    try:
        return value()
    except PffError as error:
        return str(error)


def _guarded_handle(name: str, *given: Any) -> ctypes.c_void_p | str | None:
    try:
        return handle(name, *given)
    except PffError as error:
        return str(error)
