"""From text to words: folding, segmentation, and the same words for documents, queries and highlights.

Tantivy splits at everything that is neither letter nor digit and lower-cases. What is not ASCII is folded here before it gets
there: case, accents, compatibility forms, Arabic and Hebrew marks; scripts without spaces are cut into single characters,
which a query then looks for side by side (what bigrams find, and single characters too).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, lru_cache

import tantivy

# combining marks of Latin, Greek, Cyrillic, Hebrew and Arabic; never those of Indic and Thai scripts, which carry vowels
_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f\u200b-\u200f\u00ad]+"
)
_LETTERS = str.maketrans(
    {
        "ı": "i",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ħ": "h",
        "ŧ": "t",
        "ى": "ي",
        "ة": "ه",
        "ٱ": "ا",
        "ک": "ك",
        "ی": "ي",
    }
)
_FOLDED_LETTERS = re.compile("[ıøłđðþæœħŧىةٱکی]")
# Thai, Lao, Myanmar, Khmer, Hiragana, Katakana, Han (with its extensions)
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_UNSPACED_CHAR = re.compile(f"([{_UNSPACED}])")
_THAI_TONES = re.compile("[\u0e47-\u0e4e\u0ec8-\u0ece]+")
# vowel signs of Indic scripts, which Tantivy counts as letters and Python's \\w does not; viramas are no letters for either
_VOWEL_SIGNS = "".join(
    char
    for char in map(chr, range(0x900, 0xE00))
    if unicodedata.category(char) in ("Mn", "Mc") and unicodedata.combining(char) == 0
)
_LETTER = f"[^\\W_{_UNSPACED}]|[{_VOWEL_SIGNS}]"
WORD = re.compile(
    f"[{_UNSPACED}]|(?:{_LETTER})(?:{_LETTER}|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u00ad])*"
)
_ASCII = frozenset(map(chr, range(128)))
# what is not ASCII, with what stands between such characters and is no letter: a text in another script is one run
_FOREIGN = re.compile("[^\x00-\x7f]+(?:[\x00-\x40]+[^\x00-\x7f]+)*")
_SHORT_RUN = 24
_IRREGULAR = "\ue000"
_STAND_INS = 0xA500  # letters of a script that mail hardly ever has, one for each sign that a setting makes part of words


@lru_cache(maxsize=65536)
def fold_word(word: str) -> str:
    return word.lower() if word.isascii() else _fold(word).replace(" ", "")


def fold(text: str) -> str:
    """Only what is not ASCII, mostly a few characters here and there, and often the same ones."""
    return _FOREIGN.sub(_folded_run, text)


def _folded_run(match: re.Match[str]) -> str:
    run = match.group()
    return _fold_short(run) if len(run) <= _SHORT_RUN else _fold(run)


@lru_cache(maxsize=16384)
def _fold_short(run: str) -> str:
    return _fold(run)


def _fold(text: str) -> str:
    text = unicodedata.normalize("NFKD", text.casefold())
    text = _MARKS.sub("", text)
    if _FOLDED_LETTERS.search(text):
        text = text.translate(_LETTERS)
    text = unicodedata.normalize("NFC", text)
    if _UNSPACED_CHAR.search(text):
        text = _UNSPACED_CHAR.sub(r" \1 ", _THAI_TONES.sub("", text))
    return text


class _Aligned(dict[int, str]):
    """For `str.translate`: each character folded to one character; `_IRREGULAR` where one becomes none or several."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = _fold(char).strip()
        if len(folded) != 1:
            folded = _IRREGULAR if char.isalnum() or unicodedata.category(char) in ("Mn", "Mc", "Cf") else " "
        self[code] = folded
        return folded


_ALIGNED = _Aligned()


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A folded text that knows where its characters come from.

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
    lowered = text.lower()
    if len(lowered) == len(text):  # only what is not ASCII is left to fold, mostly a few different characters
        folded = lowered
        for char in set(lowered).difference(_ASCII):
            folded = folded.replace(char, _ALIGNED[ord(char)])
    else:
        folded = text.translate(_ALIGNED)
    place = folded.find(_IRREGULAR)
    if place < 0:
        return FoldedText(folded)
    parts: list[str] = []
    starts, origins = [0], [0]
    length = done = 0
    while place >= 0:
        replaced = _fold(text[place]).strip()
        parts.extend((folded[done:place], replaced))
        length += place - done + len(replaced)
        done = place + 1
        starts.extend((length - len(replaced), length))
        origins.extend((place, done))
        place = folded.find(_IRREGULAR, done)
    parts.append(folded[done:])
    return FoldedText("".join(parts), tuple(starts), tuple(origins))


def is_unspaced(word: str) -> bool:
    """A character of a script without spaces, which is a word of its own and has no longer forms."""
    return len(word) == 1 and _UNSPACED_CHAR.match(word) is not None


def joins(char: str) -> bool:
    """Whether a word goes on at this character (not in scripts without spaces, where each character is a word)."""
    return char.isalnum() and (char < "\u0e00" or _UNSPACED_CHAR.match(char) is None)


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Cuts text into words by the settings of one index."""

    separators: tuple[str, ...] = ()
    non_separators: tuple[str, ...] = ()
    dictionary: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        return not (self.separators or self.non_separators or self.dictionary)

    def prepare(self, text: str) -> str:
        """The text as it is handed to Tantivy."""
        if not self.plain:
            text = self._apply(text)
        return text if text.isascii() else fold(text)

    def words(self, text: str) -> list[str]:
        """The words that Tantivy will see in this text."""
        return analyzer().analyze(self.prepare(text))

    def tokens(self, text: str) -> list[tuple[int, int, str]]:
        """The words with their places in the text as it was written (for marks): start, end, folded word."""
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
    """A filter value as it is compared: trimmed, compatibility forms and case folded, accents kept."""
    value = value.strip()
    return value.lower() if value.isascii() else unicodedata.normalize("NFKD", value).lower()
