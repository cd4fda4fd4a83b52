"""Extracts the text of XML parts of office documents, by element. Uses Expat and rejects entities, so none is expanded or
fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from archiver.extract.extraction import ExtractionRefused, ExtractionState

_SEPARATOR = "\n"  # between namespace and name; occurs in neither
Attributes = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the elements of a format mean for its text. All names are local names, because writers choose the prefixes."""

    texts: frozenset[str] = frozenset()
    """Elements whose characters are text; if empty, all elements."""
    breaks: Mapping[str, str] = field(default_factory=dict)
    """Text to insert at the start of an element."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Text to insert at the end of an element."""
    skipped: frozenset[str] = frozenset()
    """Elements that are omitted with everything in them."""
    aside: frozenset[str] = frozenset()
    """Elements whose text is moved to the end, such as deleted letters in the middle of a word."""
    attributes: frozenset[str] = frozenset()
    """Attributes whose values are text, such as descriptions of images."""


class XmlText:
    """Collects the text of one part. `on_start` sees each element first, and may begin a new page."""

    def __init__(self, vocabulary: Vocabulary, on_start: Callable[[str, Attributes], None] | None = None) -> None:
        self._vocabulary = vocabulary
        self._on_start = on_start
        self._pieces: list[str] = []
        self._aside: list[str] = []
        self._is_aside = False
        self._inside = 0  # of elements whose characters are text
        self._skipping = 0  # of elements that are omitted

    def read(self, data: bytes) -> None:
        parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = _refuse_entity
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise ExtractionRefused(ExtractionState.BROKEN, f"xml: {error}") from error

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def take(self) -> str:
        """What was collected since the last call, line by line, without empty lines."""
        text = "\n".join(("".join(self._pieces), *self._aside))
        self._pieces, self._aside = [], []
        lines = (line.strip(" \t\xa0") for line in text.split("\n"))
        return "\n".join(line for line in lines if line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        words, local = self._vocabulary, _local(name)
        if self._skipping or local in words.skipped:
            self._skipping += 1
            return
        if self._on_start is not None:
            self._on_start(local, {_local(key): value for key, value in attributes.items()})
        if local in words.texts:
            self._inside += 1
        self._is_aside = local in words.aside
        if local in words.breaks:
            self._pieces.append(words.breaks[local])
        if words.attributes:
            for key, value in attributes.items():
                if _local(key) in words.attributes:
                    self._pieces.append(f"\n{value}\n")

    def _end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        local = _local(name)
        if local in self._vocabulary.texts:
            self._inside -= 1
        self._is_aside = False
        self._pieces.append(self._vocabulary.ends.get(local, ""))

    def _characters(self, text: str) -> None:
        if not self._skipping and (self._inside or not self._vocabulary.texts):
            (self._aside if self._is_aside else self._pieces).append(text)


def xml_text(data: bytes, vocabulary: Vocabulary) -> str:
    reader = XmlText(vocabulary)
    reader.read(data)
    return reader.take()


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


def _refuse_entity(*_: object) -> None:
    raise ExtractionRefused(ExtractionState.BROKEN, "xml: declares entities")
