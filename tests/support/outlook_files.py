"""Writes MSG files: compound files (MS-CFB) whose streams are the properties of an item (MS-OXMSG)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

SECTOR, MINI, CUTOFF = 512, 64, 4096
FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
Tree = dict[str, "bytes | Tree"]
Value = str | int | bool | bytes | datetime


@dataclass(frozen=True, slots=True)
class MsgSpec:
    """An item by its properties; `named` are those with a number in their name."""

    properties: Mapping[int, Value]
    recipients: Sequence[Mapping[int, Value]] = ()
    files: Sequence[Mapping[int, Value] | MsgSpec] = ()
    named: Mapping[int, Value] = field(default_factory=dict)


def msg(spec: MsgSpec) -> bytes:
    return compound({**_item(spec, 32), "__nameid_version1.0": {"__substg1.0_00030102": _names(spec)}})


def _names(spec: MsgSpec) -> bytes:
    return b"".join(struct.pack("<IHH", number, 0, index) for index, number in enumerate(spec.named))


def _item(spec: MsgSpec, header: int) -> Tree:
    named = {0x8000 + index: value for index, value in enumerate(spec.named.values())}
    tree = _properties({**spec.properties, **named}, header)
    for number, one in enumerate(spec.recipients):
        tree[f"__recip_version1.0_#{number:08X}"] = _properties(one, 8)
    for number, file in enumerate(spec.files):
        tree[f"__attach_version1.0_#{number:08X}"] = _attached(file) if isinstance(file, MsgSpec) else _properties(file, 8)
    return tree


def _attached(spec: MsgSpec) -> Tree:
    return {**_properties({0x3705: 5, 0x3001: "attached"}, 8), "__substg1.0_3701000D": _item(spec, 24)}


def _properties(values: Mapping[int, Value], header: int) -> Tree:
    tree: Tree = {}
    table = bytes(header)
    for tag, value in values.items():
        kind, data = _encode(value)
        if kind in (0x1F, 0x102):
            tree[f"__substg1.0_{tag:04X}{kind:04X}"] = data
            data = struct.pack("<II", len(data), 0)
        table += struct.pack("<HHI8s", kind, tag, 6, data)
    tree["__properties_version1.0"] = table
    return tree


def _encode(value: Value) -> tuple[int, bytes]:
    match value:
        case bool():
            return 0x0B, struct.pack("<Q", value)
        case int():
            return 0x03, struct.pack("<q", value)
        case str():
            return 0x1F, value.encode("utf-16-le")
        case datetime():
            return 0x40, struct.pack("<Q", int((value - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds()) * 10**7)
        case _:
            return 0x102, value


@dataclass(slots=True)
class _Entry:
    name: str
    kind: int
    content: bytes = b""
    child: int = FREE
    right: int = FREE
    start: int = END


def compound(tree: Tree) -> bytes:
    entries = [_Entry("Root Entry", 5)]
    entries[0].child = _add(entries, tree)
    sectors: list[bytes] = []
    fat: list[int] = []
    mini = b""
    mini_fat: list[int] = []
    for entry in entries[1:]:
        if entry.kind == 2 and len(entry.content) >= CUTOFF:
            entry.start = _store(sectors, fat, entry.content)
        elif entry.kind == 2 and entry.content:
            entry.start = len(mini_fat)
            count = -(-len(entry.content) // MINI)
            mini_fat += [*range(entry.start + 1, entry.start + count), END]
            mini += entry.content.ljust(count * MINI, b"\0")
    entries[0].content = mini
    entries[0].start = _store(sectors, fat, mini) if mini else END
    packed_mini = b"".join(struct.pack("<I", one) for one in mini_fat)
    mini_start = _store(sectors, fat, packed_mini.ljust(-(-len(packed_mini) // SECTOR) * SECTOR, b"\xff")) if mini else END
    directory = _store(sectors, fat, b"".join(map(_pack, entries)))
    fat_sectors = 1
    while (len(fat) + fat_sectors) * 4 > fat_sectors * SECTOR:
        fat_sectors += 1
    first = len(fat)
    fat += [FAT] * fat_sectors
    table = b"".join(struct.pack("<I", one) for one in fat).ljust(fat_sectors * SECTOR, b"\xff")
    head = struct.pack("<8s16sHHHHH6xIIIIIIIII", bytes.fromhex("d0cf11e0a1b11ae1"), b"", 0x3E, 3, 0xFFFE, 9, 6,
                       0, fat_sectors, directory, 0, CUTOFF, mini_start, len(packed_mini) // SECTOR + 1, END, 0)  # fmt: skip
    difat = [*range(first, first + fat_sectors)]
    head += b"".join(struct.pack("<I", one) for one in (difat + [FREE] * 109)[:109])
    return head + b"".join(sectors) + table


def _add(entries: list[_Entry], tree: Tree) -> int:
    """Siblings as a list to the right, in their order."""
    before: _Entry | None = None
    first = FREE
    for name in sorted(tree, key=lambda name: (len(name), name.upper())):
        content = tree[name]
        entry = _Entry(name, 1) if isinstance(content, dict) else _Entry(name, 2, content)
        entries.append(entry)
        number = len(entries) - 1
        if before is None:
            first = number
        else:
            before.right = number
        before = entry
        if isinstance(content, dict):
            entry.child = _add(entries, content)
    return first


def _store(sectors: list[bytes], fat: list[int], content: bytes) -> int:
    first, count = len(fat), -(-len(content) // SECTOR)
    sectors += [content[at * SECTOR : (at + 1) * SECTOR].ljust(SECTOR, b"\0") for at in range(count)]
    fat += [*range(first + 1, first + count), END]
    return first


def _pack(entry: _Entry) -> bytes:
    name = entry.name.encode("utf-16-le") + b"\0\0"
    return (
        name.ljust(64, b"\0")
        + struct.pack("<HBBIII", len(name), entry.kind, 1, FREE, entry.right, entry.child)
        + bytes(36)
        + struct.pack("<IQ", entry.start, len(entry.content))
    )
