"""Joins the lines of format=flowed text (RFC 3676)."""

import re

_QUOTED = re.compile(r"(?:(?<=\n)|\A)>[^\n]*(?:\n>[^\n]*)*")
_SEPARATOR = "-- "  # the signature separator ends with a space, but is not flowed (section 4.3)


def unflow(text: str, *, delete_space: bool = False) -> str:
    """Joins the lines that end with a space to the next one of the same quote depth; unstuffs the rest."""
    pieces: list[str] = []
    at = 0
    for quoted in _QUOTED.finditer(text) if ">" in text else ():
        pieces += [_unflow_plain(text[at : quoted.start()], delete_space), _unflow_quoted(quoted[0], delete_space)]
        at = quoted.end()
    pieces.append(_unflow_plain(text[at:], delete_space))
    return "".join(pieces)


def _unflow_plain(text: str, delete_space: bool) -> str:
    """Lines without quote marks, all at once."""
    if " \n" not in text and "\n " not in text and not text.startswith(" "):
        return text
    text = f"\n{text}".replace(f"\n{_SEPARATOR}\n", "\n--\0\n")
    head, *rest = text.split(" \n")
    joined = [head, *(line[1:] if line.startswith(" ") else line for line in rest)]  # section 4.4: space-stuffing
    text = ("" if delete_space else " ").join(joined).replace("\n ", "\n")
    return text.replace("\n--\0\n", f"\n{_SEPARATOR}\n")[1:]


def _unflow_quoted(text: str, delete_space: bool) -> str:
    out: list[str] = []
    paragraph: list[str] = []
    paragraph_depth = 0
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        content = line[depth + line.startswith(" ", depth) :]
        if paragraph and (depth != paragraph_depth or content == _SEPARATOR):
            out.append(f"{'>' * paragraph_depth} {''.join(paragraph)}")
            paragraph = []
        paragraph_depth = depth
        paragraph.append(content[:-1] if delete_space and content.endswith(" ") else content)
        if not content.endswith(" ") or content == _SEPARATOR:
            out.append(f"{'>' * depth} {''.join(paragraph)}")
            paragraph = []
    if paragraph:
        out.append(f"{'>' * paragraph_depth} {''.join(paragraph)}")
    return "\n".join(out)
