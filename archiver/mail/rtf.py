"""Text from RTF, as far as mail needs it: bodies in TNEF files. Documents go through `archiver.extract`."""

import re

_TOKEN = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\([^a-z0-9\r\n])|([{}])|([^\\{}\r\n]+)|[\r\n]+|\\", re.IGNORECASE
)
_SKIPPED = frozenset(
    {"fonttbl", "colortbl", "stylesheet", "info", "pict", "object", "header", "footer", "themedata", "datastore", "listtable",
     "generator", "xmlnstbl", "listoverridetable", "rsidtbl", "mhtmltag"}
)  # fmt: skip
_BREAKS = {
    "par": "\n",
    "line": "\n",
    "sect": "\n",
    "page": "\n",
    "row": "\n",
    "cell": "\t",
    "tab": "\t",
    "emdash": "—",
    "endash": "–",
}
_DEPTH = 500


def rtf_to_text(rtf: str) -> str:
    """The text of an RTF document; of one that encapsulates HTML (MS-OXRTFEX), the text of that HTML. One pass."""
    out: list[str] = []
    stack: list[tuple[bool, int, bool]] = []
    skip, unicode_skip, in_rtf_only, pending = False, 1, False, 0
    codepage = _codepage(rtf)
    for token in _TOKEN.finditer(rtf):  # all at once, they would take a hundred times the memory of the text
        word, number, hexa, symbol, brace, text = token.groups("")
        if brace == "{":
            stack.append((skip, unicode_skip, in_rtf_only))
            if len(stack) > _DEPTH:
                break
        elif brace == "}":
            skip, unicode_skip, in_rtf_only = stack.pop() if stack else (False, 1, False)
        elif symbol == "*" or word in _SKIPPED:
            skip = True
        elif word == "htmlrtf":
            in_rtf_only = number != "0"
        elif word == "uc":
            unicode_skip = int(number or 1)
        elif skip or in_rtf_only:
            continue
        elif word == "u":
            out.append(chr(int(number or 63) % 65536))
            pending = unicode_skip
        elif hexa:
            if pending:
                pending -= 1
            else:
                out.append(bytes([int(hexa, 16)]).decode(codepage, "replace"))
        elif word:
            out.append(_BREAKS.get(word, ""))
        elif symbol:
            out.append({"~": "\xa0", "_": "-", "-": ""}.get(symbol, symbol))
        elif text:
            out.append(text[pending:])
            pending = 0
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _codepage(rtf: str) -> str:
    found = re.search(r"\\ansicpg(\d{3,5})", rtf[:2000])
    codepage = f"cp{found[1]}" if found else "cp1252"
    try:
        b"".decode(codepage)
    except LookupError:
        return "cp1252"
    return codepage
