"""libpff through its C functions.

Its Python module can't open embedded messages nor find items by number, but its shared library exports everything. The file is
read through a descriptor that this process was given, because a confined process can't open files.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from importlib.util import find_spec
from typing import Any

_MANAGED, _READ = 0x02, 1
_ANY_TYPE, _NO_NAMES = 0x01, 0x02
_NAMED, _NUMERIC = 0x8000, ord("n")
_ERROR_BYTES = 512


class PffError(Exception):
    """libpff could not read something; the text is its own."""


@cache
def library() -> ctypes.CDLL:
    found = find_spec("pypff")
    if found is None or found.origin is None:
        raise PffError("libpff is not installed")
    return ctypes.CDLL(found.origin)


@cache
def _function(name: str, result: Any) -> Any:
    function = getattr(library(), f"libpff_{name}")
    function.restype = result
    return function


def call(name: str, *given: Any) -> int:
    """Calls a function whose last parameter is a pointer for an error. 1 if there is a value, 0 if there is none."""
    return _call(name, c_int, given)


def read_data(name: str, *given: Any) -> int:
    """The same for functions that return a number of bytes."""
    return _call(name, c_ssize_t, given)


def _call(name: str, kind: Any, given: tuple[Any, ...]) -> int:
    error = c_void_p()
    result = int(_function(name, kind)(*given, byref(error)))
    if error.value or result < 0:
        raise PffError(_explain(error) or f"{name} failed")
    return result


def _explain(error: c_void_p) -> str:
    if not error.value:
        return ""
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    library().libpff_error_sprint(error, text, c_size_t(_ERROR_BYTES))
    library().libpff_error_free(byref(error))
    return text.value.decode("utf-8", "replace").strip()


def count(name: str, handle: c_void_p) -> int:
    value = c_int()
    call(name, handle, byref(value))
    return max(0, value.value)


def number(name: str, handle: c_void_p) -> int:
    value = c_uint32()
    call(name, handle, byref(value))
    return value.value


def handle(name: str, *given: Any) -> c_void_p | None:
    """A new item, or None if there is none. The caller frees it."""
    value = c_void_p()
    return value if call(name, *given, byref(value)) == 1 and value.value else None


def free(kind: str, value: c_void_p | None) -> None:
    if value is not None and value.value:
        _function(f"{kind}_free", c_int)(byref(value), None)


@contextmanager
def held(kind: str, value: c_void_p | None) -> Iterator[c_void_p | None]:
    try:
        yield value
    finally:
        free(kind, value)


_FREE = ctypes.CFUNCTYPE(c_int, POINTER(c_void_p), c_void_p)
_CLONE = ctypes.CFUNCTYPE(c_int, POINTER(c_void_p), c_void_p, c_void_p)
_OPEN = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
_PLAIN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
_TRANSFER = ctypes.CFUNCTYPE(c_ssize_t, c_void_p, POINTER(c_uint8), c_size_t, c_void_p)
_SEEK = ctypes.CFUNCTYPE(c_int64, c_void_p, c_int64, c_int, c_void_p)
_SIZE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_uint64), c_void_p)


class DescriptorFile:
    """What libpff reads from: an open descriptor, with a position of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at = descriptor, 0
        self._size = os.fstat(descriptor).st_size
        self._callbacks = (
            _FREE(lambda held, error: 1),
            _CLONE(lambda new, old, error: -1),
            _OPEN(lambda held, flags, error: 1),
            _PLAIN(lambda held, error: 0),
            _TRANSFER(self._read),
            _TRANSFER(lambda held, data, size, error: -1),
            _SEEK(self._seek),
            _PLAIN(lambda held, error: 1),
            _PLAIN(lambda held, error: 1),
            _SIZE(self._tell_size),
        )
        self.pointer = c_void_p()
        self._token = c_int64()  # something to point to
        made = library().libbfio_handle_initialize(
            byref(self.pointer), byref(self._token), *self._callbacks, c_uint8(_MANAGED), None
        )
        if made != 1:
            raise PffError("the file can't be opened")

    def _read(self, held: int, buffer: Any, size: int, error: int) -> int:
        try:
            data = os.pread(self._descriptor, size, self._at)
        except OSError:
            return -1
        ctypes.memmove(buffer, data, len(data))
        self._at += len(data)
        return len(data)

    def _seek(self, held: int, offset: int, whence: int, error: int) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}.get(whence, 0)
        if base + offset < 0:
            return -1
        self._at = base + offset
        return self._at

    def _tell_size(self, held: int, size: Any, error: int) -> int:
        size[0] = self._size
        return 1


class PffFile:
    """An open PST or OST. Everything is freed with the process."""

    def __init__(self, descriptor: int) -> None:
        self._source = DescriptorFile(descriptor)
        self.pointer = c_void_p()
        call("file_initialize", byref(self.pointer))
        call("file_open_file_io_handle", self.pointer, self._source.pointer, c_int(_READ))

    @property
    def codepage(self) -> int:
        value = c_int()
        call("file_get_ascii_codepage", self.pointer, byref(value))
        return value.value or 1252

    def item(self, node: int) -> c_void_p | None:
        return handle("file_get_item_by_identifier", self.pointer, c_uint32(node))

    def is_damaged(self) -> bool:
        return call("file_is_corrupted", self.pointer) == 1

    def recover(self) -> None:
        call("file_recover_items", self.pointer, c_uint8(0))


def entries(item: c_void_p, names: dict[int, int], wanted: Callable[[int], bool], limit: int) -> dict[int, tuple[int, bytes]]:
    """The wanted properties of an item. A value that can't be read is left out.

    `names` collects the numbers in the names of named properties, which are the same in the whole file.
    """
    found: dict[int, tuple[int, bytes]] = {}
    with held("record_set", handle("item_get_record_set_by_index", item, c_int(0))) as records:
        if records is None:
            return found
        for index in range(count("record_set_get_number_of_entries", records)):
            entry = handle("record_set_get_entry_by_index", records, c_int(index))
            try:
                if entry is not None and wanted(tag := _tag(entry, names)):
                    found.setdefault(tag, _value(entry, limit))
            except PffError:
                continue
            finally:
                free("record_entry", entry)
    return found


def row(item: c_void_p, record_set: int, wanted: Collection[int], limit: int) -> dict[int, tuple[int, bytes]]:
    """The same for a row of a table, of which few columns are wanted."""
    found: dict[int, tuple[int, bytes]] = {}
    with held("record_set", handle("item_get_record_set_by_index", item, c_int(record_set))) as records:
        for tag in wanted if records is not None else ():
            with held("record_entry", _column(records, tag)) as entry:
                if entry is not None:
                    found[tag] = _value(entry, limit)
    return found


def _column(records: c_void_p | None, tag: int) -> c_void_p | None:
    value = c_void_p()
    is_there = call(
        "record_set_get_entry_by_type", records, c_uint32(tag), c_uint32(0), byref(value), c_uint8(_ANY_TYPE | _NO_NAMES)
    )
    return value if is_there == 1 and value.value else None


def _tag(entry: c_void_p, names: dict[int, int]) -> int:
    own = number("record_entry_get_entry_type", entry)
    if own < _NAMED:
        return own
    if own not in names:
        names[own] = _named(entry)
    return names[own]


def _named(entry: c_void_p) -> int:
    """0 for a name that is a text. The map belongs to the file and is not freed."""
    name = handle("record_entry_get_name_to_id_map_entry", entry)
    kind = c_uint8()
    if name is None:
        return 0
    call("name_to_id_map_entry_get_type", name, byref(kind))
    return number("name_to_id_map_entry_get_number", name) if kind.value == _NUMERIC else 0


def _value(entry: c_void_p, limit: int) -> tuple[int, bytes]:
    return number("record_entry_get_value_type", entry), _entry_data(entry, limit)


def _entry_data(entry: c_void_p, limit: int) -> bytes:
    size = c_size_t()
    call("record_entry_get_data_size", entry, byref(size))
    if not size.value:
        return b""
    if size.value > limit:
        raise PffError(f"a property of {size.value:,} bytes")
    data = ctypes.create_string_buffer(size.value)
    call("record_entry_get_data", entry, ctypes.cast(data, c_char_p), size)
    return data.raw
