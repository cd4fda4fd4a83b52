"""TNEF (winmail.dat): what Outlook wraps its mail in, unwrapped."""

import logging
from dataclasses import dataclass

from tnefparse import TNEF

from archiver.mail import limits
from archiver.mail.rtf import rtf_to_text

_TNEF_BYTES = 100 << 20
_SIGNATURE = b"\x78\x9f\x3e\x22"

# It reports each oddity of a file, with content, as an error.
logging.getLogger("tnefparse").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class TnefFile:
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Tnef:
    text: str
    html: str
    files: tuple[TnefFile, ...]


def is_tnef(content: bytes) -> bool:
    return content.startswith(_SIGNATURE)


def read_tnef(content: bytes) -> Tnef | None:
    """The body and files of a TNEF stream, or None if it can't be read."""
    if not is_tnef(content) or len(content) > _TNEF_BYTES:
        return None
    try:
        tnef = TNEF(content, do_checksum=False)
        files = tuple(
            TnefFile(str(file.long_filename() or file.name or "").strip("\0"), bytes(file.data or b""))
            for file in tnef.attachments[: limits.EMBEDDED_FILES]
        )
        html, text = _text(tnef.htmlbody), _text(tnef.body)
        rtf = "" if text or html else _text(tnef.rtfbody)
    except Exception:  # noqa: BLE001 - the library raises whatever a broken file leads to; the message must survive it
        return None
    text = text or rtf_to_text(rtf)
    return Tnef(text, html, files) if text or html or files else None


def _text(value: object) -> str:
    if isinstance(value, list):
        value = value[0] if value else ""
    if isinstance(value, bytes):
        return value.decode("utf-8") if _is_utf8(value) else value.decode("cp1252", "replace")
    return value.strip("\0") if isinstance(value, str) else ""


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
