"""The bodies of an item: plain text, HTML, or RTF, which may have either inside."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.mail.formats.rtf import encapsulated, rtf_to_html, rtf_to_text
from archiver.mail.formats.rtf_compression import decompress_rtf
from archiver.outlook import properties as tags
from archiver.outlook.properties import PropertySet, charset_of

_RTF_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class OutlookBody:
    subtype: str
    charset: str
    content: bytes


def bodies_of(values: PropertySet) -> list[OutlookBody]:
    """In the order of `multipart/alternative`: the best one last. RTF is kept if it is a document of its own."""
    text, html = _text(values), _html(values)
    rtf = _rtf(values) if html is None else b""
    source = rtf.decode("latin-1")
    kind = encapsulated(source)
    if kind == "html":
        html = OutlookBody("html", "utf-8", _clean(rtf_to_html(source)))
    elif rtf and text is None:
        text = OutlookBody("plain", "utf-8", _clean(rtf_to_text(source)))
    found = [body for body in (text, html) if body is not None]
    return [*found, OutlookBody("rtf", "", rtf)] if rtf and not kind else found


def _text(values: PropertySet) -> OutlookBody | None:
    raw = values.raw(tags.BODY)
    if values.is_unicode(tags.BODY):
        return _utf8(raw, "plain")
    raw = raw.rstrip(b"\0")
    return OutlookBody("plain", _charset(raw, values.text_codepage), raw) if raw.strip() else None


def _html(values: PropertySet) -> OutlookBody | None:
    raw = values.raw(tags.HTML)
    if values.is_unicode(tags.HTML):
        return _utf8(raw, "html")
    raw = raw.rstrip(b"\0")
    codepage = values.number(tags.INTERNET_CODEPAGE) or values.text_codepage
    return OutlookBody("html", _charset(raw, codepage), raw) if raw.strip() else None


def _utf8(raw: bytes, subtype: str) -> OutlookBody | None:
    text = raw.decode("utf-16-le", "replace").rstrip("\0")
    return OutlookBody(subtype, "utf-8", text.encode("utf-8", "replace")) if text.strip() else None


def _charset(raw: bytes, codepage: int) -> str:
    """As declared. Without a known code page, UTF-8 is what it is if it can be."""
    known = charset_of(codepage)
    if known:
        return known
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"


def _rtf(values: PropertySet) -> bytes:
    raw = values.raw(tags.RTF)
    if raw.startswith(b"{\\rtf"):
        return raw.rstrip(b"\0")
    return (decompress_rtf(raw, _RTF_BYTES) or b"").rstrip(b"\0") if raw else b""


def _clean(text: str) -> bytes:
    return text.encode("utf-8", "replace")
