"""How near to the beginning of an attribute its words stand: terms for the rule `wordPosition`, written beside the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archiver.search_server.index.text import analyzer

POSITION_STEPS = 5
_ENDS = (1, 4, 8, 16, 32)  # the first word is worth all steps, the next three one step less, and so on
_CHARS = 512  # of an attribute, in which its first words are looked for


def position_term(attribute: str, step: int, word: str) -> str:
    """The term of a word that is worth `step` steps in an attribute."""
    return f"{attribute}:{step}:{word}"


def position_terms(attribute: str, texts: Sequence[str]) -> Iterator[str]:
    """The terms of the first words of an attribute, each by its first place. `texts` are prepared for Tantivy."""
    text = texts[0] if len(texts) == 1 else " ".join(texts)
    words = analyzer().analyze(text[:_CHARS])
    if len(text) > _CHARS and words:
        words.pop()  # it may be cut
    seen: set[str] = set()
    start = 0
    for place, end in enumerate(_ENDS):
        for word in words[start:end]:
            if word not in seen:
                seen.add(word)
                yield position_term(attribute, POSITION_STEPS - place, word)
        start = end
