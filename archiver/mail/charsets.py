"""Decodes bytes to text: by the declared charset, its aliases, detection and, as a last resort, replacement characters."""

import codecs
import re
from functools import lru_cache

from resiliparse.parse.encoding import detect_encoding

from archiver.mail.defects import Defects

_SAMPLE_BYTES = 32 << 10
_FEW = 0.1  # of the characters outside ASCII: up to this share of errors, a damaged text is still read in its declared charset

# Names that occur in mail and that Python does not know, or knows as something narrower than what mail programs mean
# by it (WHATWG Encoding Standard, section 4.2).
_ALIASES = {
    "ansi_x3.4-1986": "ascii",
    "big5-hkscs-2001": "big5hkscs",
    "cn-gb": "gb18030",
    "cp-850": "cp850",
    "cp932": "cp932",
    "cp936": "gb18030",
    "dos-720": "cp720",
    "euc-kr": "cp949",
    "eucgb2312-cn": "gb18030",
    "gb2312": "gb18030",
    "gb_2312-80": "gb18030",
    "gbk": "gb18030",
    "hebrew": "cp1255",
    "iso-8859-1": "cp1252",
    "iso-8859-11": "cp874",
    "iso-8859-8-e": "iso8859_8",
    "iso-8859-8-i": "iso8859_8",
    "iso-8859-9": "cp1254",
    "iso-ir-100": "cp1252",
    "korean": "cp949",
    "ks_c_5601": "cp949",
    "ks_c_5601-1987": "cp949",
    "l1": "cp1252",
    "latin-1": "cp1252",
    "latin1": "cp1252",
    "macintosh": "mac_roman",
    "shift-jis": "cp932",
    "shift_jis": "cp932",
    "sjis": "cp932",
    "tis-620": "cp874",
    "unicode-1-1-utf-7": "utf-7",
    "unicode-1-1-utf-8": "utf-8",
    "utf8mb4": "utf-8",
    "win-1250": "cp1250",
    "win-1251": "cp1251",
    "win-1252": "cp1252",
    "windows-31j": "cp932",
    "windows-874": "cp874",
    "windows-949": "cp949",
    "x-euc-jp": "euc_jp",
    "x-euc-kr": "cp949",
    "x-gbk": "gb18030",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-roman": "mac_roman",
    "x-sjis": "cp932",
    "x-user-defined": "cp1252",
    "x-windows-874": "cp874",
    "x-windows-949": "cp949",
}
# Not charsets of mail; idna and punycode are quadratic, unicode_escape executes escapes.
_REFUSED = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ISO_2022_JP = re.compile(rb"\x1b\$[@B]")
_ISO_2022_KR = b"\x1b$)C"


@lru_cache(maxsize=512)
def codec_for(declared: str) -> str | None:
    """Python's name for a charset as declared in mail; None for an unknown charset."""
    name = declared.strip(" \t\r\n\"'<>;").lower().removeprefix("charset=").strip(" \"'")
    name = name.partition("*")[0]  # RFC 2231, section 5: charset*language
    for candidate in (name, name.replace("_", "-"), name.replace(" ", "-"), f"cp{name.removeprefix('windows-')}"):
        found = _ALIASES.get(candidate) or _lookup(candidate)
        if found:
            return found
    return None


def _lookup(name: str) -> str | None:
    if not name or len(name) > 60 or not name.isascii() or "\0" in name:
        return None
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError, UnicodeError):
        return None
    if not getattr(info, "_is_text_encoding", True) or info.name.replace("-", "_") in _REFUSED:
        return None
    return _ALIASES.get(info.name.lower(), info.name)


def decode(data: bytes, declared: str, defects: Defects) -> str:
    """The text of `data`. Never raises; whatever was guessed or replaced is recorded in `defects`."""
    if data.isascii() and b"\x1b" not in data and (not declared or declared.lower() in ("us-ascii", "utf-8", "iso-8859-1")):
        return data.decode("ascii")
    codec = codec_for(declared) if declared else None
    if declared and codec is None:
        defects.add("unknown_charset", declared)
    if codec in (None, "ascii"):
        return _without_charset(data, declared, defects)
    if codec == "cp1252":
        return _western(data, defects)
    return _decode_declared(data, codec, declared, defects)


def _decode_declared(data: bytes, codec: str, declared: str, defects: Defects) -> str:
    if codec == "utf-8" and data.startswith(codecs.BOM_UTF8):
        codec = "utf-8-sig"
    if codec == "utf-8" and data.isascii() and (_ISO_2022_JP.search(data) or _ISO_2022_KR in data):
        return _without_charset(data, declared, defects)
    try:
        text = data.decode(codec)
    except (UnicodeError, ValueError):
        defects.add("wrong_charset", declared)
    else:
        return text if codec != "utf-7" else _without_half_pairs(text)
    text = data.decode(codec, "replace")
    if codec == "utf-7":
        text = _without_half_pairs(text)
    bad = text.count("\ufffd")
    outside = len(text) - len(text.encode("ascii", "ignore"))
    if bad <= max(2, outside * _FEW):
        return text
    return _detect(data, defects, text)


def _without_half_pairs(text: str) -> str:
    """UTF-7 can contain halves of surrogate pairs, which no encoder accepts."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _western(data: bytes, defects: Defects) -> str:
    """ISO 8859-1 as it is used: Windows-1252, or UTF-8 under a wrong label."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
    if not data.isascii():
        defects.add("wrong_charset", "utf-8 labelled as western")
    return text


def _without_charset(data: bytes, declared: str, defects: Defects) -> str:
    for bom, codec in _BOMS:
        if data.startswith(bom):
            return data.decode(codec, "replace")
    if data.isascii():
        if _ISO_2022_JP.search(data):
            return data.decode("iso2022_jp_2", "replace")
        if _ISO_2022_KR in data:
            return data.decode("iso2022_kr", "replace")
        return data.decode("ascii")
    defects.add("charset_missing" if not declared else "charset_too_narrow", declared)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _detect(data, defects, "")


def _detect(data: bytes, defects: Defects, otherwise: str) -> str:
    # Only bytes outside ASCII carry information, and the first of them may be far into the text.
    first = re.search(rb"[\x80-\xff]", data)
    start = max(0, first.start() - 1024) if first else 0
    guess = codec_for(detect_encoding(data[start : start + _SAMPLE_BYTES]) or "")
    for codec in (guess, "cp1252"):
        if codec is None or codec in ("ascii", "utf-8"):
            continue
        try:
            text = data.decode(codec)
        except (UnicodeError, ValueError):
            continue
        defects.add("charset_guessed", codec)
        return text
    defects.add("undecodable_bytes")
    return otherwise or data.decode("utf-8", "replace")
