"""MSG: one item in a compound file (MS-OXMSG). Storages are recipients, attachments and attached messages."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence

from archiver.extract.compound import CompoundFile, NotCompound, Storage
from archiver.outlook import properties as tags
from archiver.outlook.items import (
    ALL_KINDS,
    ATTACHMENTS,
    KIND_BITS,
    PIECE_BYTES,
    PROPERTY_BYTES,
    RECIPIENTS,
    OutlookFileBroken,
)
from archiver.outlook.properties import WANTED, PropertySet

_PROPERTIES = "__properties_version1.0"
_NAMES, _NAME_ENTRIES = "__nameid_version1.0", "__substg1.0_00030102"
_TOP_HEADER, _EMBEDDED_HEADER, _CHILD_HEADER = 32, 24, 8
_ENTRY = struct.Struct("<HHI8s")
_NAMED = 0x8000
_VARIABLE = frozenset({tags.STRING8, tags.UNICODE, tags.BINARY})
_MULTIPLE = 0x1000
_DATA = f"__substg1.0_{tags.ATTACHED:04X}{tags.BINARY:04X}"
_OBJECT = f"__substg1.0_{tags.ATTACHED:04X}{tags.OBJECT:04X}"
_EMBEDDED = 5
_OLE_STREAMS = ("contents", "\x01ole10native", "package", "ole_pres")

Names = Mapping[int, int]
"""From the number of a named property in this file to the number in its name."""


def open_msg(source: int | bytes) -> MsgItem:
    """An open descriptor, or the bytes. Raises OutlookFileBroken."""
    try:
        file = CompoundFile(source if isinstance(source, bytes) else mmap.mmap(source, 0, access=mmap.ACCESS_READ))
    except (NotCompound, ValueError, OSError, struct.error) as error:
        raise OutlookFileBroken("not a compound file, or its directory is damaged") from error
    if file.root.stream(_PROPERTIES) is None:
        raise OutlookFileBroken("a compound file, but not an Outlook message")
    return MsgItem(file.root, _named(file.root), _TOP_HEADER, 0)


class MsgItem:
    def __init__(self, storage: Storage, names: Names, header_bytes: int, codepage: int) -> None:
        self._storage, self._names = storage, names
        self.properties = _read_properties(storage, names, header_bytes, codepage)
        self._codepage = self.properties.text_codepage

    def recipients(self, kinds: Collection[int] = ALL_KINDS) -> Sequence[PropertySet]:
        found = [*self._storage.storages("__recip_version1.0_#")][:RECIPIENTS]
        read = [_read_properties(one, self._names, _CHILD_HEADER, self._codepage) for one in found]
        return [one for one in read if one.number(tags.RECIPIENT_TYPE) & KIND_BITS in kinds]

    def attachments(self) -> Sequence[MsgAttachment]:
        found = [*self._storage.storages("__attach_version1.0_#")][:ATTACHMENTS]
        return [MsgAttachment(one, self._names, self._codepage) for one in found]


class MsgAttachment:
    def __init__(self, storage: Storage, names: Names, codepage: int) -> None:
        self._storage, self._names, self._codepage = storage, names, codepage
        self.properties = _read_properties(storage, names, _CHILD_HEADER, codepage)

    def pieces(self) -> Iterator[bytes]:
        """Of an OLE object, which is a storage, what the program behind it stored."""
        ole = self._storage.storage(_OBJECT)
        if ole is None:
            yield from self._storage.pieces(_DATA, PIECE_BYTES)
            return
        names = sorted(ole.streams(), key=lambda name: (not name.startswith(_OLE_STREAMS), -ole.size(name), name))
        if names:
            yield from ole.pieces(names[0], PIECE_BYTES)

    def item(self) -> MsgItem | None:
        if self.properties.number(tags.METHOD) != _EMBEDDED:
            return None
        inner = self._storage.storage(_OBJECT)
        return MsgItem(inner, self._names, _EMBEDDED_HEADER, self._codepage) if inner is not None else None


def _read_properties(storage: Storage, names: Names, header_bytes: int, codepage: int) -> PropertySet:
    table = storage.stream(_PROPERTIES) or b""
    found: dict[int, tuple[int, bytes]] = {}
    for at in range(header_bytes, len(table) - _ENTRY.size + 1, _ENTRY.size):
        kind, own, _, value = _ENTRY.unpack_from(table, at)
        tag = names.get(own, 0) if own >= _NAMED or own in names else own
        if tag not in WANTED or kind & _MULTIPLE or tag in found:
            continue
        data = value if kind not in _VARIABLE else _variable(storage, own, kind)
        if data is not None:
            found[tag] = kind, data
    return PropertySet(found, codepage or _codepage(found))


def _variable(storage: Storage, own: int, kind: int) -> bytes | None:
    name = f"__substg1.0_{own:04X}{kind:04X}"
    return storage.stream(name) if storage.size(name) <= PROPERTY_BYTES else None


def _codepage(found: Mapping[int, tuple[int, bytes]]) -> int:
    """8-bit text is in the code page of the message, or in that of its body."""
    values = PropertySet(found)
    return values.number(tags.MESSAGE_CODEPAGE) or values.number(tags.INTERNET_CODEPAGE) or 1252


def _named(root: Storage) -> dict[int, int]:
    """Properties named by a number; we read none that is named by a text."""
    storage = root.storage(_NAMES)
    table = (storage.stream(_NAME_ENTRIES) if storage is not None else None) or b""
    found: dict[int, int] = {}
    for at in range(0, len(table) - 7, 8):
        number, flags, index = struct.unpack_from("<IHH", table, at)
        if not flags & 1:
            found[_NAMED + index] = number
    return found
