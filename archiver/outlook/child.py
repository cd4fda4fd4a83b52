"""The requests that a child answers which reads an Outlook file (archiver.extract.serving). It has one file open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from archiver.extract.serving import Answer, Answers
from archiver.outlook import properties as tags
from archiver.outlook.items import OutlookFileBroken, OutlookItem
from archiver.outlook.mime import Conversion
from archiver.outlook.msg import MsgItem, open_msg
from archiver.outlook.olm import OlmFile, OlmFolder, OlmItem
from archiver.outlook.properties import PropertySet
from archiver.outlook.pst import PstFile, PstFolder, PstItem

_SETTINGS = ("IPM.MICROSOFT.", "IPM.CONFIGURATION.", "IPM.EXTENDEDRULE", "IPM.RULE.")
_READ, _UNSENT = 1, 8
_FLAGGED = 2
_VERBS = {102: "\\Answered", 103: "\\Answered", 104: "$Forwarded"}


@dataclass(slots=True)
class _OpenFile:
    origin: str
    file: PstFile | MsgItem | OlmFile
    folders: Sequence[PstFolder | OlmFolder]
    pending: Iterator[bytes]

    def item(self, folder: int, index: int) -> PstItem | MsgItem | OlmItem:
        if isinstance(self.file, MsgItem):
            return self.file
        found = self.folders[folder]
        if isinstance(self.file, OlmFile):
            assert isinstance(found, OlmFolder)
            return self.file.item(found, index)
        assert isinstance(found, PstFolder)
        return self.file.item(found, index)


_opened: list[_OpenFile] = []


def _open(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    descriptor = int(header["descriptor"])
    try:
        if header["kind"] == "msg":
            _opened[:] = [_OpenFile("MSG", open_msg(descriptor), [PstFolder((), 0, 1)], iter(()))]
        elif header["kind"] == "olm":
            olm = OlmFile(descriptor)
            _opened[:] = [_OpenFile("OLM", olm, olm.folders, iter(()))]
        else:
            pst = PstFile(descriptor)
            _opened[:] = [_OpenFile("PST", pst, [*pst.folders(bool(header["recover"]))], iter(()))]
    except OutlookFileBroken as error:
        return {"broken": str(error)}, ()
    file = _opened[0]
    folders = [(folder.path, folder.items, folder.error) for folder in file.folders]
    return {"folders": folders, "is_damaged": isinstance(file.file, PstFile) and file.file.is_damaged}, ()


def _items(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    """Some items of a folder. One that is too large is announced without its bytes, and is the last of the answer."""
    file, folder = _opened[0], int(header["folder"])
    most, limit = int(header["bytes"]), int(header["limit"])
    found: list[dict[str, Any]] = []
    given: list[bytes] = []
    size = 0
    for index in range(int(header["start"]), int(header["start"]) + limit):
        told, data = _item(file, folder, index, most)
        found.append(told)
        given.append(data)
        size += len(data)
        if told.get("is_large") or size > most:
            break
    return {"found": found}, given


def _message(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    """A small MSG, which comes with the request: one child reads many of them."""
    try:
        file = _OpenFile("MSG", open_msg(pieces[0]), [], iter(()))
    except OutlookFileBroken as error:
        return {"broken": str(error)}, ()
    told, data = _item(file, 0, 0, int(header["bytes"]))
    return told, [data]


def _item(file: _OpenFile, folder: int, index: int, most: int) -> tuple[dict[str, Any], bytes]:
    try:
        item = file.item(folder, index)
        kind = item.properties.text(tags.MESSAGE_CLASS)
        if kind.upper().startswith(_SETTINGS):
            return {"left_out": f"not mail: settings of Outlook ({kind[:100]})"}, b""
        conversion = Conversion(file.origin)
        held, size = [], 0
        for piece in conversion.build(item):
            held.append(piece)
            size += len(piece)
            if size > most:
                return {**_values(item), "is_large": True, "problems": []}, b""
    except OutlookFileBroken as error:
        return {"unreadable": str(error)}, b""
    return {**_values(item), "problems": conversion.problems}, b"".join(held)


def _large(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    file = _opened[0]
    file.pending = Conversion(file.origin).build(file.item(int(header["folder"]), int(header["index"])))
    return _more(header, pieces)


def _more(header: dict[str, Any], pieces: list[bytes]) -> Answer:
    file, most = _opened[0], int(header["bytes"])
    held, size = [], 0
    for piece in file.pending:
        held.append(piece)
        size += len(piece)
        if size >= most:
            return {"is_end": False}, held
    return {"is_end": True}, held


def _values(item: OutlookItem) -> dict[str, Any]:
    values = item.properties
    at = values.time(tags.DELIVERED_AT)
    node = item.node if isinstance(item, PstItem | OlmItem) else 0
    return {"node": node, "flags": _flags(values), "received_at": at.isoformat() if at is not None else None}


def _flags(values: PropertySet) -> list[str]:
    bits = values.number(tags.MESSAGE_FLAGS)
    verb = _VERBS.get(values.number(tags.LAST_VERB))
    is_flagged = values.number(tags.FLAG_STATUS) == _FLAGGED
    found = [("\\Seen", bits & _READ), ("\\Draft", bits & _UNSENT), ("\\Flagged", is_flagged), (verb or "", verb is not None)]
    return [flag for flag, is_set in found if is_set]


ANSWERS: Answers = {"message": _message, "open": _open, "items": _items, "large": _large, "more": _more}
