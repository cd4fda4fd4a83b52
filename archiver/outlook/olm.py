"""OLM: an archive of Outlook for Mac. A zip of XML files, one for each message, with its attachments as files beside them.

Nothing in it is trusted: no document type or entity is accepted, every file is read up to a limit, names are only looked up.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.parsers import expat

from archiver.outlook import properties as tags
from archiver.outlook.items import (
    ALL_KINDS,
    ATTACHMENTS,
    BCC,
    CC,
    PIECE_BYTES,
    PROPERTY_BYTES,
    RECIPIENTS,
    TO,
    OutlookFileBroken,
)
from archiver.outlook.properties import PropertySet

_MESSAGES = "com.microsoft.__Messages"
_MEMBERS = 2_000_000
_DEPTH = 100
_CONTROLS = bytes(byte if byte >= 0x20 or byte in b"\t\n\r" else 0x20 for byte in range(256))
_HEADER = re.compile(r"[!-9;-~]{1,100}:[^\n]*\n")
_HTML = re.compile(r"\s*<(?:!doctype html|html)", re.IGNORECASE)
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_LISTS = {"OPFMessageCopyToAddresses": TO, "OPFMessageCopyCCAddresses": CC, "OPFMessageCopyBCCAddresses": BCC}
_TEXTS = {
    "OPFMessageCopySubject": tags.SUBJECT,
    "OPFMessageCopyBody": tags.BODY,
    "OPFMessageCopyHTMLBody": tags.HTML,
    "OPFMessageCopyMessageID": tags.MESSAGE_ID,
    "OPFMessageCopyReferences": tags.REFERENCES,
    "OPFMessageCopyInReplyTo": tags.IN_REPLY_TO,
    "OPFMessageCopySource": tags.TRANSPORT_HEADERS,
}
_TIMES = {"OPFMessageCopySentTime": tags.SUBMITTED_AT, "OPFMessageCopyReceivedTime": tags.DELIVERED_AT}
_READ, _UNSENT, _FLAGGED = 1, 8, 2


@dataclass(frozen=True, slots=True)
class OlmFolder:
    path: tuple[str, ...]
    names: tuple[str, ...]
    """Of the files in the zip, one for each message."""
    first: int
    """The number of its first message in the whole file."""
    error: str = ""

    @property
    def items(self) -> int:
        return len(self.names)


class _Positioned(io.RawIOBase):
    """A file by its descriptor, whose position stays as it is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._at, self._size = descriptor, 0, os.fstat(descriptor).st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + {0: 0, 1: self._at, 2: self._size}[whence])
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class OlmFile:
    def __init__(self, descriptor: int) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BufferedReader(_Positioned(descriptor), 1 << 16))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise OutlookFileBroken("not a zip file, or its directory is damaged") from error
        members = self._zip.infolist()
        if len(members) > _MEMBERS:
            raise OutlookFileBroken(f"more than {_MEMBERS:,} files in it")
        self._members = {member.filename: member for member in members if not member.is_dir()}
        self.folders = _folders(self._members)
        if not self.folders:
            raise OutlookFileBroken("a zip file, but without messages of Outlook for Mac")

    def item(self, folder: OlmFolder, index: int) -> OlmItem:
        name = folder.names[index]
        root = _parse(self.read(name))
        emails = [root] if root.name == "email" else [one for one in root.children if one.name == "email"]
        if len(emails) != 1:
            raise OutlookFileBroken(f"{len(emails)} messages in one file")
        return OlmItem(self, name.partition(_MESSAGES)[0], emails[0], folder.first + index + 1)

    def read(self, name: str) -> bytes:
        found = bytearray()
        for piece in self.pieces(name):
            found += piece
            if len(found) > PROPERTY_BYTES:
                raise OutlookFileBroken(f"a file of more than {PROPERTY_BYTES >> 20} MiB")
        return bytes(found)

    def pieces(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._members[name]) as member:
                while piece := member.read(PIECE_BYTES):
                    yield piece
        except KeyError:
            raise OutlookFileBroken("a file is missing") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            raise OutlookFileBroken(f"a file in it can't be unpacked: {str(error)[:200]}") from error

    def find(self, account: str, url: str) -> str | None:
        """The file that an attachment names: relative to its account, or to the whole."""
        return next((name for name in (url, account + url) if name in self._members), None)


def _folders(members: Collection[str]) -> list[OlmFolder]:
    """In the order of their names. With several accounts, each has a folder of its own."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in sorted(members):
        account, middle, rest = name.partition(_MESSAGES + "/")
        *path, last = rest.split("/")
        if middle and last.lower().endswith(".xml") and not last.startswith("."):
            found.setdefault((account, tuple(path)), []).append(name)
    several = len({account for account, _ in found}) > 1
    folders, first = [], 0
    for (account, levels), names in sorted(found.items()):
        top = (account.strip("/").rpartition("/")[2] or "Local",) if several else ()
        folders.append(OlmFolder((*top, *levels), tuple(names), first))
        first += len(names)
    return folders


@dataclass(slots=True)
class XmlNode:
    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[XmlNode] = field(default_factory=list)


def _parse(data: bytes) -> XmlNode:
    """Raises OutlookFileBroken. Control characters, which Outlook writes and XML forbids, become spaces."""
    top = XmlNode("")
    stack, texts = [top], [[""]]

    def start(name: str, values: dict[str, str]) -> None:
        if len(stack) > _DEPTH:
            raise OutlookFileBroken(f"nested more than {_DEPTH} deep")
        node = XmlNode(name, values)
        stack[-1].children.append(node)
        stack.append(node)
        texts.append([])

    def end(_: str) -> None:
        stack.pop().text = "".join(texts.pop())

    def refuse(*_: object) -> int:
        raise OutlookFileBroken("it declares a document type")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = lambda text: texts[-1].append(text)
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    plain = data if data.startswith((b"\xff\xfe", b"\xfe\xff")) else data.translate(_CONTROLS)
    try:
        parser.Parse(plain, True)
    except (expat.ExpatError, ValueError) as error:
        raise OutlookFileBroken(f"its XML can't be read: {str(error)[:200]}") from error
    return top.children[0] if top.children else top


class OlmItem:
    def __init__(self, file: OlmFile, account: str, email: XmlNode, node: int) -> None:
        self._file, self._account, self.node = file, account, node
        self._parts = {one.name: one for one in email.children}
        self.properties = PropertySet(dict(self._values()))

    def recipients(self, kinds: Collection[int] = ALL_KINDS) -> Sequence[PropertySet]:
        found = [
            PropertySet({**_address(one, tags.DISPLAY_NAME, tags.SMTP_ADDRESS), tags.RECIPIENT_TYPE: _number(kind)})
            for name, kind in _LISTS.items()
            if kind in kinds
            for one in self._people(name)
        ]
        return found[:RECIPIENTS]

    def attachments(self) -> Sequence[OlmAttachment]:
        listed = self._parts.get("OPFMessageCopyAttachmentList", XmlNode("")).children
        found = [one for one in listed if one.name == "messageAttachment"]
        return [OlmAttachment(self._file, self._account, one.values) for one in found[:ATTACHMENTS]]

    def _text(self, name: str) -> str:
        return self._parts[name].text if name in self._parts else ""

    def _is(self, name: str) -> bool:
        """Booleans are written as `1E0` or `0E0`."""
        try:
            return float(self._text(name).strip() or 0) != 0
        except ValueError:
            return False

    def _people(self, name: str) -> list[XmlNode]:
        return [one for one in self._parts.get(name, XmlNode("")).children if one.name == "emailAddress"]

    def _values(self) -> Iterator[tuple[int, tuple[int, bytes]]]:
        texts = {tag: self._text(name) for name, tag in _TEXTS.items()}
        if not _HEADER.match(texts[tags.TRANSPORT_HEADERS].lstrip()):
            texts[tags.TRANSPORT_HEADERS] = ""
        if _HTML.match(texts[tags.BODY]):  # written by some releases instead of the other
            texts[tags.HTML], texts[tags.BODY] = texts[tags.HTML] or texts[tags.BODY], ""
        yield tags.MESSAGE_CLASS, _unicode("IPM.Note")
        yield from ((tag, _unicode(text)) for tag, text in texts.items() if text)
        for name, tag in _TIMES.items():
            at = _time(self._text(name))
            if at is not None:
                yield tag, at
        for name, (shown, smtp) in _AUTHORS.items():
            yield from ((tag, value) for one in self._people(name)[:1] for tag, value in _address(one, shown, smtp).items())
        bits = _READ * self._is("OPFMessageGetIsRead") + _UNSENT * self._is("OPFMessageGetIsDraft")
        yield tags.MESSAGE_FLAGS, _number(bits)
        yield tags.FLAG_STATUS, _number(_FLAGGED * self._is("OPFMessageGetFlagStatus"))


_AUTHORS = {
    "OPFMessageCopyFromAddresses": (tags.ON_BEHALF_NAME, tags.ON_BEHALF_SMTP),
    "OPFMessageCopySenderAddress": (tags.SENDER_NAME, tags.SENDER_SMTP),
}


class OlmAttachment:
    def __init__(self, file: OlmFile, account: str, values: Mapping[str, str]) -> None:
        self._file, self._account, self._url = file, account, values.get("OPFAttachmentURL", "")
        found = {
            tags.LONG_NAME: values.get("OPFAttachmentName", ""),
            tags.MIME_TYPE: values.get("OPFAttachmentContentType", ""),
            tags.CONTENT_ID: values.get("OPFAttachmentContentID", "").strip("<>"),
        }
        self.properties = PropertySet({tag: _unicode(text) for tag, text in found.items() if text})

    def pieces(self) -> Iterator[bytes]:
        name = self._file.find(self._account, self._url) if self._url else None
        if name is None:
            raise OutlookFileBroken("the attachment is not in the archive")
        yield from _regrouped(self._file.pieces(name))

    def item(self) -> None:
        """An attached message is a file like any other."""


def _regrouped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Each of PIECE_BYTES but the last: a zip may deliver less than it was asked for."""
    held = b""
    for piece in pieces:
        held += piece
        while len(held) >= PIECE_BYTES:
            yield held[:PIECE_BYTES]
            held = held[PIECE_BYTES:]
    if held:
        yield held


def _unicode(text: str) -> tuple[int, bytes]:
    return tags.UNICODE, text.encode("utf-16-le", "surrogatepass")


def _number(value: int) -> tuple[int, bytes]:
    return tags.INT32, value.to_bytes(4, "little")


def _time(text: str) -> tuple[int, bytes] | None:
    """In UTC, also where it does not say so."""
    try:
        at = datetime.fromisoformat(text.strip())
        spent = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    ticks = (spent.days * 86_400 + spent.seconds) * 10_000_000 + spent.microseconds * 10
    return (tags.TIME, ticks.to_bytes(8, "little")) if ticks > 0 else None


def _address(node: XmlNode, name: int, smtp: int) -> dict[int, tuple[int, bytes]]:
    values = node.values
    found = {name: values.get("OPFContactEmailAddressName"), smtp: values.get("OPFContactEmailAddressAddress")}
    return {tag: _unicode(text) for tag, text in found.items() if text}
