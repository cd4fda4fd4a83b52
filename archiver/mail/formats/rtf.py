"""Extracts text from RTF: bodies in TNEF files, documents, and RTF that encapsulates HTML (MS-OXRTFEX).

Characters outside ASCII are bytes in the code page of the font that they are set in (`\\fcharsetN`), or Unicode with a
replacement after it that older readers show (`\\uN`).
"""

import re
from dataclasses import dataclass, field, replace

_TOKEN = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\([^a-z0-9\r\n])|([{}])|([^\\{}\r\n]+)|[\r\n]+|\\", re.IGNORECASE
)
_SKIPPED = frozenset(
    {"colortbl", "stylesheet", "info", "pict", "object", "themedata", "datastore", "listtable", "generator", "xmlnstbl",
     "listoverridetable", "rsidtbl", "mhtmltag", "pntext", "pntxta", "pntxtb", "sp", "falt", "panose", "fontemb", "fontfile",
     "nonshppict", "bkmkstart", "bkmkend", "ftnsep", "ftnsepc", "aftnsep", "aftnsepc", "revtbl", "filetbl"}
)  # fmt: skip
# Text within destinations that are otherwise omitted: title and keywords of the document, the visible result of an object.
_SHOWN = frozenset({"title", "subject", "keywords", "doccomm", "result", "shptxt"})
# Destinations that older readers ignore (`\*`), but that contain text, or destinations with text.
_OPTIONAL = frozenset({"annotation", "shpinst", "shptxt", "footnote"})
_SEPARATE = frozenset(
    {"header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf", "footnote", "annotation", *_SHOWN}
)
_BREAKS = {
    **dict.fromkeys(("par", "line", "sect", "page", "row", "softline", "column", "nestrow"), "\n"),
    **dict.fromkeys(("cell", "tab", "nestcell"), "\t"),
    **dict.fromkeys(("emspace", "enspace", "qmspace"), " "),
    "emdash": "—",
    "endash": "–",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
}
# The character sets of fonts (RTF 1.9.1, "Font Table") as Python's codecs. 1 is that of the document.
_CHARSETS = {
    0: "cp1252", 77: "mac_roman", 78: "shift_jis", 79: "johab", 80: "gb2312", 81: "big5", 85: "mac_greek",
    86: "mac_turkish", 88: "mac_latin2", 89: "mac_cyrillic", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030",
    136: "big5hkscs", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251",
    222: "cp874", 238: "cp1250", 254: "cp437",
}  # fmt: skip
_DEPTH = 500
_FONTS = 10_000


@dataclass(frozen=True, slots=True)
class _State:
    """The state that a group inherits, and that ends with the group."""

    skip: bool = False
    unicode_skip: int = 1
    in_rtf_only: bool = False
    codepage: str = ""
    in_fonts: bool = False
    is_separate: bool = False  # its text is separated from the text around it


@dataclass(slots=True)
class _Reader:
    codepage: str
    state: _State
    out: list[str] = field(default_factory=list)
    fonts: dict[int, str] = field(default_factory=dict)
    default_font: int = -1
    font: int = 0  # the font that the font table is describing
    held: bytearray = field(default_factory=bytearray)  # consecutive bytes, because a character may have two
    pending: int = 0  # characters of a replacement text that are still to be skipped
    is_optional: bool = False  # `\*` was read; it applies to the next control word
    keeps_tags: bool = False  # the tags of HTML that is encapsulated are part of the result

    def flush(self) -> None:
        if self.held:
            codepage = self.state.codepage or self.fonts.get(self.default_font) or self.codepage
            self.out.append(self.held.decode(codepage, "replace"))
            self.held.clear()

    def close(self, before: _State) -> None:
        self.flush()
        if self.state.is_separate and not before.is_separate:
            self.out.append("\n")
        self.state = before

    def word(self, word: str, number: str) -> None:
        is_optional, self.is_optional = self.is_optional, False
        state = self.state
        if word == "u" and not state.skip and not state.in_rtf_only:
            self.flush()
            self.out.append(chr(int(number or 63) % 65536))
            self.pending = state.unicode_skip
        elif word == "uc":
            self.state = replace(state, unicode_skip=min(int(number or 1), 100))
        elif word == "htmlrtf":
            self.flush()
            self.state = replace(state, in_rtf_only=number != "0")
        elif state.in_fonts or word == "fonttbl":
            self._font_word(word, number)
        elif word in _SEPARATE and (word in _SHOWN or not state.skip):
            self.flush()
            self.out.append("\n")
            self.state = replace(state, skip=False, is_separate=True)
        elif word == "htmltag" and is_optional and self.keeps_tags:
            self.flush()
        elif word in _SKIPPED or (is_optional and word not in _OPTIONAL):
            self.state = replace(state, skip=True)
        elif not state.skip:
            self._text_word(word, number)

    def _text_word(self, word: str, number: str) -> None:
        if word in ("f", "plain"):
            self.flush()
            codepage = self.fonts.get(int(number or 0), "") if word == "f" else ""
            self.state = replace(self.state, codepage=codepage)
        elif word == "deff":
            self.default_font = int(number or 0)
        elif not self.state.in_rtf_only and word in _BREAKS:
            self.flush()
            self.out.append(_BREAKS[word])

    def _font_word(self, word: str, number: str) -> None:
        self.state = replace(self.state, in_fonts=True, skip=True)
        if word == "f":
            self.font = int(number or 0)
        elif word in ("fcharset", "cpg") and len(self.fonts) < _FONTS:
            codepage = _CHARSETS.get(int(number or 0), "") if word == "fcharset" else _known(f"cp{number}", "")
            if codepage:
                self.fonts[self.font] = codepage

    def byte(self, value: int) -> None:
        if self.state.skip or self.state.in_rtf_only:
            return
        if self.pending:
            self.pending -= 1
        else:
            self.held.append(value)

    def text(self, text: str) -> None:
        if self.state.skip or self.state.in_rtf_only:
            return
        text, self.pending = text[self.pending :], max(0, self.pending - len(text))
        # The second byte of a character may be a letter, and bytes may be in the text unescaped.
        if self.held or not text.isascii():
            self.held += text.encode("latin-1", "replace")
        else:
            self.out.append(text)

    def symbol(self, symbol: str) -> None:
        if symbol == "*":
            self.is_optional = True
        elif not (self.state.skip or self.state.in_rtf_only):
            self.flush()
            self.out.append({"~": "\xa0", "_": "-", "-": ""}.get(symbol, symbol))


def rtf_to_text(rtf: str) -> str:
    """Single pass. `rtf` has each byte outside ASCII as the Latin-1 character with that number."""
    return _read(rtf, _Reader(_codepage(rtf), _State()))


def encapsulated(rtf: str) -> str:
    """What the RTF was made from: `html`, `text`, or empty if it is a document of its own (MS-OXRTFEX, 2.1.3.1)."""
    head = rtf[:2000]
    return "html" if "\\fromhtml1" in head else "text" if "\\fromtext" in head else ""


def rtf_to_html(rtf: str) -> str:
    """The HTML that is encapsulated in RTF."""
    return _read(rtf, _Reader(_codepage(rtf), _State(), keeps_tags=True))


def _read(rtf: str, reader: _Reader) -> str:
    stack: list[_State] = []
    for token in _TOKEN.finditer(rtf):  # a list of all matches would take a hundred times the memory of the text
        word, number, hexa, symbol, brace, text = token.groups("")
        if brace == "{":
            reader.flush()
            reader.is_optional = False
            stack.append(reader.state)
            if len(stack) > _DEPTH:
                break
        elif brace == "}":
            reader.close(stack.pop() if stack else _State())
        elif word:
            reader.word(word, number)
        elif hexa:
            reader.byte(int(hexa, 16))
        elif symbol:
            reader.symbol(symbol)
        elif text:
            reader.text(text)
    reader.flush()
    return "".join(reader.out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _codepage(rtf: str) -> str:
    head = rtf[:2000]
    found = re.search(r"\\ansicpg(\d{3,5})", head)
    if found:
        return _known(f"cp{found[1]}", "cp1252")
    return "mac_roman" if "\\mac" in head else "cp437" if "\\pc\\" in head else "cp1252"


def _known(codepage: str, otherwise: str) -> str:
    codepage = {"cp936": "gb18030", "cp950": "big5hkscs", "cp10000": "mac_roman", "cp65001": "utf-8"}.get(codepage, codepage)
    try:
        b"".decode(codepage)
    except LookupError:
        return otherwise
    return codepage
