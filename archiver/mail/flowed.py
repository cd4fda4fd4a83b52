"""RFC 3676: format=flowed, lines that belong together made one again."""


def unflow(text: str, *, delete_space: bool = False) -> str:
    """Joins the lines that end with a space to the next one of the same quote depth; unstuffs the rest."""
    out: list[str] = []
    paragraph: list[str] = []
    paragraph_depth = 0
    for line in text.replace("\r\n", "\n").split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        content = line[depth:]
        if content.startswith(" "):  # section 4.4: space-stuffing
            content = content[1:]
        if paragraph and (depth != paragraph_depth or content == "-- "):
            out.append(_line(paragraph, paragraph_depth))
            paragraph = []
        paragraph_depth = depth
        if content.endswith(" ") and content != "-- ":
            paragraph.append(content[:-1] if delete_space else content)
            continue
        out.append(_line([*paragraph, content], depth))
        paragraph = []
    if paragraph:
        out.append(_line(paragraph, paragraph_depth))
    return "\n".join(out)


def _line(pieces: list[str], depth: int) -> str:
    return f"{'>' * depth} {''.join(pieces)}" if depth else "".join(pieces)
