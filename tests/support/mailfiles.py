"""Writes mail into files as other programs do: what goes in here must come out of the connector, byte for byte."""

from __future__ import annotations

import gzip
import io
import lzma
import plistlib
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import zstandard

POSTMARK = b"From ann@example.org Mon Jan  6 10:00:00 2020\n"
_QUOTED = {"mboxo": re.compile(rb"(?m)^(?=From )"), "mboxrd": re.compile(rb"(?m)^(?=>*From )")}
_QUOTED["mboxcl"] = _QUOTED["mboxo"]


def message(number: int, body: bytes = b"", more: bytes = b"", newline: bytes = b"\n") -> bytes:
    """Like no other one."""
    text = (
        b"Received: from mail.example.org by mx.example.org; Mon, 6 Jan 2020 10:00:00 +0000\n"
        b"From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: Number %d\nDate: Mon, 6 Jan 2020 10:00:00 +0000\n%s\n"
        b"This is message %d.\n%s" % (number, more, number, body)
    )
    return text.replace(b"\n", newline)


def body_of(data: bytes) -> int:
    """Where the body begins."""
    ends = [end + len(blank) for blank in (b"\n\n", b"\n\r\n") if (end := data.find(blank)) >= 0]
    return min(ends) if ends else len(data)


def with_length(data: bytes) -> bytes:
    """As the mboxcl variants want it."""
    at = body_of(data)
    blank = 2 if data[:at].endswith(b"\r\n") else 1
    return data[: at - blank] + b"Content-Length: %d" % (len(data) - at) + data[at - blank : at] * 2 + data[at:]


def mbox(messages: Sequence[bytes], variant: str = "mboxrd") -> bytes:
    """Each message ends with a line end, as everything in an mbox does. For mboxcl and mboxcl2 use `with_length` before."""
    pieces = []
    for data in messages:
        at = body_of(data)
        quoted = _QUOTED[variant].sub(b">", data[at:]) if variant in _QUOTED else data[at:]
        head = data[:at]
        if variant == "mboxcl":  # the length is that of the quoted text
            head = head.replace(b"Content-Length: %d" % len(data[at:]), b"Content-Length: %d" % len(quoted))
        pieces += [POSTMARK, head, quoted, b"\n"]
    return b"".join(pieces)


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def eml_folder(path: Path, messages: Sequence[bytes]) -> Path:
    for number, data in enumerate(messages):
        put(path / f"{number:05}.eml", data)
    return path


def maildir(path: Path, messages: Sequence[bytes], flags: str = "S") -> Path:
    for sub in ("cur", "new", "tmp"):
        (path / sub).mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(messages):
        name = f"{1578304800 + number}.M{number}P1.host"
        put(path / "cur" / f"{name}:2,{flags}" if number % 3 else path / "new" / name, data)
    return path


def mh(path: Path, messages: Sequence[bytes]) -> Path:
    for number, data in enumerate(messages, 1):
        put(path / str(number), data)
    put(path / ".mh_sequences", b"unseen: 1-3\nflagged: 5\n")
    return path


def emlx(data: bytes, flags: int = 1) -> bytes:
    properties = plistlib.dumps({"flags": flags, "date-received": 1578304800})
    return b"%-10d\n" % len(data) + data + properties


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
