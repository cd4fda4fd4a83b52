"""Decodes header values: RFC 2047 encoded words, raw 8-bit bytes, and malformed mixtures of both."""

import binascii
import re
from collections.abc import Iterator

from archiver.mail import charsets
from archiver.mail.defects import Defects

_START = re.compile(r"=\?([^?\s]{1,64})\?([bBqQ])\?")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f]")

_Chunk = tuple[str, bytes | str]  # charset and bytes of encoded words, or "" and literal text


def header_text(value: str, defects: Defects) -> str:
    """The value of a field with its bytes outside ASCII decoded; encoded words are left as they are."""
    if value.isascii():
        if "\x1b$" not in value:
            return value
        return charsets.decode(value.encode("ascii"), "", defects)
    defects.add("raw_8bit_header")
    # One field may contain several charsets, one per line or word: tried as UTF-8 as a whole first, then guessed.
    return charsets.decode(field_bytes(value), "", Defects())


def field_bytes(value: str) -> bytes:
    """The original bytes of a field value."""
    return value.encode("ascii", "surrogateescape")


def unstructured(value: str, defects: Defects) -> str:
    """The text of an unstructured field such as the subject: decoded, white space collapsed, control characters removed."""
    text = header_text(value, defects)
    if "=?" in text:
        text = decode_words(text, defects)
    return tidy(text)


def tidy(text: str) -> str:
    text = " ".join(text.split())
    return text if text.isprintable() else _CONTROLS.sub("", text)


def decode_words(text: str, defects: Defects) -> str:
    """Decodes RFC 2047 encoded words wherever they occur. Linear in the length of the text."""
    if "=?" not in text:
        return text
    return "".join(_texts(_join(_chunks(text, defects)), defects))


def _chunks(text: str, defects: Defects) -> Iterator[_Chunk]:
    position, ends_at = 0, -1
    while True:
        start = _START.search(text, position)
        if start is None:
            break
        if ends_at < start.end():
            ends_at = text.find("?=", start.end())
        if ends_at < 0:  # there is no end of an encoded word after this
            defects.add("unterminated_encoded_word")
            break
        body, resume_at = text[start.end() : ends_at], ends_at + 2
        if start[2] in "qQ" and len(body) == 0 and text[resume_at : resume_at + 2].isalnum():
            # "=?utf-8?Q?=41?=": the text begins with an escape
            ends_at = text.find("?=", resume_at)
            if ends_at < 0:
                break
            body, resume_at = text[start.end() : ends_at], ends_at + 2
        if start.start() > position:
            yield "", text[position : start.start()]
        yield start[1].partition("*")[0].lower(), _decode(start[2], body, defects)
        position = resume_at
    if position < len(text):
        yield "", text[position:]


def _decode(encoding: str, body: str, defects: Defects) -> bytes:
    raw = body.encode("utf-8", "surrogateescape")
    if encoding in "qQ":
        return binascii.a2b_qp(raw.replace(b"\n", b""), header=True)
    return base64_bytes(body, defects)


def base64_bytes(body: str, defects: Defects) -> bytes:
    clean = body.rstrip("=")
    if _NOT_BASE64.search(clean):
        clean = _NOT_BASE64.sub("", clean.replace("-", "+").replace("_", "/"))
        defects.add("base64_rubbish")
    if len(clean) % 4 == 1:
        clean = clean[:-1]
        defects.add("base64_cut")
    return binascii.a2b_base64(clean + "=" * (-len(clean) % 4))


def _join(chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
    """White space between encoded words is not text (RFC 2047, 6.2). Adjacent words may split a character, in violation of
    5.3."""
    charset, pending, gap = "", bytearray(), ""
    for chunk_charset, value in chunks:
        if isinstance(value, str):
            if pending and value.isspace():
                gap = value
                continue
            if pending:
                yield charset, bytes(pending)
                pending.clear()
            yield "", gap + value
            gap = ""
            continue
        gap = ""
        if pending and chunk_charset != charset:
            yield charset, bytes(pending)
            pending.clear()
        charset = chunk_charset
        pending += value
    if pending:
        yield charset, bytes(pending)
    if gap:
        yield "", gap


def _texts(chunks: Iterator[_Chunk], defects: Defects) -> Iterator[str]:
    for charset, value in chunks:
        yield value if isinstance(value, str) else charsets.decode(value, charset, defects)
