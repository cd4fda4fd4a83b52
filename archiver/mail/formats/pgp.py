"""Inline PGP (RFC 9580, section 7): signed text is read, encrypted text is only recognised."""

import re

from archiver.mail.text.marks import Mark, MarkedText, MarkSpan
from archiver.mail.text.quotes import mark_quotes

ENCRYPTED_TEXT = "-----BEGIN PGP MESSAGE-----"
SIGNED_TEXT = "-----BEGIN PGP SIGNED MESSAGE-----"
_HEAD = re.compile(re.escape(SIGNED_TEXT) + r"[ \t]*\n(?:[A-Za-z-]+:[^\n]*\n)*[ \t]*\n?")
_SIGNATURE_START = "-----BEGIN PGP SIGNATURE-----"
_SIGNATURE_END = "-----END PGP SIGNATURE-----"
_DASH_ESCAPED = re.compile(r"(?m)^- ")


def unwrap_signed(text: str) -> MarkedText:
    """The signed text without its armour; the signature is marked."""
    text = _HEAD.sub("", text, count=1)
    start = text.find(_SIGNATURE_START)
    if start < 0:
        return mark_quotes(text)
    content = _DASH_ESCAPED.sub("", text[:start])
    end = text.find(_SIGNATURE_END, start)
    end = end + len(_SIGNATURE_END) if end >= 0 else len(text)
    signature = text[start:end]
    marked = mark_quotes(content)
    span = MarkSpan(len(content), len(content) + len(signature), Mark.SIGNATURE)
    return MarkedText(content + signature + text[end:], (*marked.spans, span))
