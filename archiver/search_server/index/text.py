"""Turns text into words, by folding and segmentation: the same words for documents, queries and highlights.

Tantivy splits at everything that is neither letter nor digit and lower-cases. Anything outside ASCII is folded here before it
gets there: case, accents, compatibility forms, Arabic and Hebrew marks; scripts without spaces are cut into single characters,
which a query then looks for side by side (what bigrams find, and single characters too)."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache

import tantivy

from archiver.search.words import UNSPACED_CHAR, WORD, fold, fold_any, fold_word

_ASCII = bytes(range(128))
_IRREGULAR = "\ue000"
_STAND_INS = 0xA500  # letters of a script that hardly occurs in mail, one for each character that a setting makes part of words


class _Aligned(dict[int, str]):
    """For `str.translate`: each character folded to one character; `_IRREGULAR` where one becomes none or several."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = fold_any(char).strip()
        if len(folded) != 1:
            folded = _IRREGULAR if char.isalnum() or unicodedata.category(char) in ("Mn", "Mc", "Cf") else " "
        self[code] = folded
        return folded


_ALIGNED = _Aligned()


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A folded text that maps its characters to the original.

    `starts` are places in the folded text from which on the distance to the original is another one, `origins` the places in
    the original that belong to them.
    """

    text: str
    starts: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()

    def origin(self, place: int) -> int:
        if not self.starts:
            return place
        number = bisect_right(self.starts, place) - 1
        found = self.origins[number] + place - self.starts[number]
        return min(found, self.origins[number + 1]) if number + 1 < len(self.origins) else found


def folded_text(text: str) -> FoldedText:
    if text.isascii():
        return FoldedText(text.lower())
    encoded = text.encode("utf-8", "surrogatepass")
    folded = encoded.lower().decode("utf-8", "surrogatepass")  # lower-casing bytes affects ASCII only, and is fast
    for char in set(encoded.translate(None, _ASCII).decode("utf-8", "surrogatepass")):  # mostly a few different ones
        if _ALIGNED[ord(char)] != char:
            folded = folded.replace(char, _ALIGNED[ord(char)])
    place = folded.find(_IRREGULAR)
    if place < 0:
        return FoldedText(folded)
    parts: list[str] = []
    starts, origins = [0], [0]
    length = done = 0
    while place >= 0:
        replaced = fold_any(text[place]).strip()
        parts.extend((folded[done:place], replaced))
        length += place - done + len(replaced)
        done = place + 1
        starts.extend((length - len(replaced), length))
        origins.extend((place, done))
        place = folded.find(_IRREGULAR, done)
    parts.append(folded[done:])
    return FoldedText("".join(parts), tuple(starts), tuple(origins))


def is_unspaced(word: str) -> bool:
    """A character of a script without spaces: it is a word on its own, which prefixes do not extend."""
    return len(word) == 1 and UNSPACED_CHAR.match(word) is not None


def joins(char: str) -> bool:
    """Whether a word continues at this character (in scripts without spaces it does not: each character is a word)."""
    return char.isalnum() and (char < "\u0e00" or UNSPACED_CHAR.match(char) is None)


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Splits text into words by the settings of one index."""

    separators: tuple[str, ...] = ()
    non_separators: tuple[str, ...] = ()
    dictionary: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return not (self.separators or self.non_separators or self.dictionary)

    def prepare(self, text: str) -> str:
        """The text that is passed to Tantivy."""
        if not self.plain:
            text = self._apply(text)
        return text if text.isascii() else fold(text)

    def words(self, text: str) -> list[str]:
        """The words that Tantivy will see in this text."""
        return analyzer().analyze(self.prepare(text))

    def tokens(self, text: str) -> list[tuple[int, int, str]]:
        """The words with their positions in the original text, for highlighting: start, end, folded word."""
        if not self.plain:
            text = self._apply(text, keep_length=True)
        return [(match.start(), match.end(), fold_word(match.group())) for match in WORD.finditer(text)]

    def _apply(self, text: str, *, keep_length: bool = False) -> str:
        for entry in self.dictionary:
            joined = "".join(char if char.isalnum() else self._stand_in(char) for char in entry)
            text = re.sub(re.escape(entry), lambda _, joined=joined: joined, text, flags=re.IGNORECASE)  # type: ignore[misc]
        for sign in self.non_separators:
            stand_in = "".join(char if char.isalnum() else self._stand_in(char) for char in sign)
            text = text.replace(sign, stand_in)
        for sign in self.separators:
            text = text.replace(sign, " " * len(sign) if keep_length else " ")
        return text

    def _stand_in(self, char: str) -> str:
        return chr(_STAND_INS + ord(char) % 0x100)


@cache
def analyzer() -> tantivy.TextAnalyzer:
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase()).build()


def fold_value(value: str) -> str:
    """The compared form of a filter value: trimmed, compatibility forms and case folded, accents kept."""
    value = value.strip()
    return value.lower() if value.isascii() else unicodedata.normalize("NFKD", value).lower()
