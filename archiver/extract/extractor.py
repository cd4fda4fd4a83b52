"""Extracts text and renders pages, in child processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from archiver.extract import limits
from archiver.extract.extraction import Extraction, ExtractionState, Picture, TextPage
from archiver.extract.pool import ChildFailed, Children
from archiver.extract.process import Piece


class Extractor:
    """Extracts text in child processes. Any number of threads may call it; each waits for a free child."""

    def __init__(self, processes: int = 2, *, ocr_languages: str = "", seconds: float = limits.SECONDS) -> None:
        """`ocr_languages`, in the form of tesseract (`eng+deu`), switch on text recognition in images."""
        self._languages = ocr_languages
        self.children = Children("archiver.extract.child", processes, seconds, programs=bool(ocr_languages))

    def __enter__(self) -> Extractor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def extract(
        self,
        data: Piece,
        name: str = "",
        declared_type: str = "",
        *,
        seconds: float = math.inf,
        tick: Callable[[], None] = lambda: None,
    ) -> Extraction:
        """The text of a file, within `seconds` if that is less than the general limit. `tick` is called every few seconds.

        Never raises because of the content of the file; OSError if no process can be started.
        """
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size == 0:
            return Extraction(ExtractionState.EMPTY, "no bytes")
        if size > limits.INPUT_BYTES:
            return Extraction(ExtractionState.TOO_LARGE, f"{size} bytes, more than the limit of {limits.INPUT_BYTES}")
        try:
            with self.children.talk(tick=tick, seconds=seconds) as talk:
                found, _ = talk.ask("extract", [data], name=name, type=declared_type, languages=self._languages)
            return _extraction(found)
        except ChildFailed as failed:
            return Extraction(_state(failed), str(failed))
        except (ValueError, KeyError, TypeError):
            return Extraction(ExtractionState.BROKEN, "the reader's answer makes no sense")

    def draw(self, data: bytes, page: int, wait: float | None = None, *, width: int = limits.PICTURE_WIDTH) -> Picture:
        """A page of a PDF, counted from 1, as PNG; page 0 for just the number of pages. Never raises because of its content.

        Raises ChildrenBusy if no child becomes free within `wait` seconds.
        """
        try:
            with self.children.talk(wait) as talk:
                found, pieces = talk.ask("draw", [data], page=page, width=width)
            return _picture(found, pieces)
        except ChildFailed as failed:
            return Picture(_state(failed), str(failed))
        except (ValueError, KeyError, TypeError, IndexError):
            return Picture(ExtractionState.BROKEN, "the reader's answer makes no sense")

    def close(self) -> None:
        """Ends all children at once, even working ones; their callers get a broken file."""
        self.children.close()


def _extraction(found: dict[str, Any]) -> Extraction:
    pages = tuple(TextPage(int(number), str(text), str(file)) for number, text, file in found["pages"])
    state, reason, kind = ExtractionState(found["state"]), str(found["reason"]), str(found["kind"])
    return Extraction(state, reason, pages, kind, bool(found["needs_ocr"]))


def _picture(found: dict[str, Any], pieces: Sequence[bytes]) -> Picture:
    return Picture(ExtractionState(found["state"]), str(found["reason"]), int(found["pages"]), pieces[0])


def _state(failed: ChildFailed) -> ExtractionState:
    if failed.is_late:
        return ExtractionState.TIMEOUT
    return ExtractionState.TOO_LARGE if failed.is_too_large else ExtractionState.BROKEN
