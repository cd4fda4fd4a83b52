"""Words as searches compare them: split at everything that is neither letter nor digit, and folded.

The embedded server, the documents and the queries use the same words: case, accents, compatibility forms, Arabic and Hebrew
marks are ignored, and scripts without spaces are split into single characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

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
UNSPACED_CHAR = re.compile(f"([{_UNSPACED}])")
_THAI_TONES = re.compile("[\u0e47-\u0e4e\u0ec8-\u0ece]+")
# vowel signs of Indic scripts, which Tantivy counts as letters and Python's \\w does not; viramas are letters for neither
_VOWEL_SIGNS = "".join(
    char
    for char in map(chr, range(0x900, 0xE00))
    if unicodedata.category(char) in ("Mn", "Mc") and unicodedata.combining(char) == 0
)
_LETTER = f"[^\\W_{_UNSPACED}]|[{_VOWEL_SIGNS}]"
WORD = re.compile(
    f"[{_UNSPACED}]|(?:{_LETTER})(?:{_LETTER}|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u00ad])*"
)
# non-ASCII characters and the non-letters between them: a text in another script is one run
_FOREIGN = re.compile("[^\x00-\x7f]+(?:[\x00-\x40]+[^\x00-\x7f]+)*")
_ASCII_WORD = re.compile("[0-9a-z]+")
_WORD_SHAPE = bytes(ord("a") if chr(code).isalnum() and code < 128 else ord(" ") for code in range(256))
_SHORT_RUN = 24


@lru_cache(maxsize=65536)
def fold_word(word: str) -> str:
    return word.lower() if word.isascii() else fold_any(word).replace(" ", "")


def fold(text: str) -> str:
    """Folds only non-ASCII runs, which are mostly short and recurring, and therefore cached."""
    return _FOREIGN.sub(_fold_run, text)


def _fold_run(match: re.Match[str]) -> str:
    run = match.group()
    return _fold_short(run) if len(run) <= _SHORT_RUN else fold_any(run)


@lru_cache(maxsize=16384)
def _fold_short(run: str) -> str:
    return fold_any(run)


def fold_any(text: str) -> str:
    text = unicodedata.normalize("NFKD", text.casefold())
    text = _MARKS.sub("", text)
    if _FOLDED_LETTERS.search(text):
        text = text.translate(_LETTERS)
    text = unicodedata.normalize("NFC", text)
    if UNSPACED_CHAR.search(text):
        text = UNSPACED_CHAR.sub(r" \1 ", _THAI_TONES.sub("", text))
    return text


def words(text: str) -> list[str]:
    """The folded words of a text, in order."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return WORD.findall(fold(text).lower())


def count_words(text: str) -> int:
    if text.isascii():
        return (b" " + text.encode().translate(_WORD_SHAPE)).count(b" a")  # counts the beginnings of words
    return len(WORD.findall(text))
