"""The text and the looks of files, found in child processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from archiver.extract import limits
from archiver.extract.extraction import Extraction, Page, Picture, State
from archiver.extract.pool import ChildFailed, Children
from archiver.extract.process import Piece


class Extractor:
    """Extracts text in child processes. Any number of threads may call it; each waits for a free child."""

    def __init__(self, processes: int = 2, *, ocr: bool = False, seconds: float = limits.SECONDS) -> None:
        self._ocr = ocr
        self.children = Children("archiver.extract.child", processes, seconds, programs=ocr)

    def __enter__(self) -> Extractor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def extract(self, data: Piece, name: str = "", declared_type: str = "", *, seconds: float = math.inf) -> Extraction:
        """The text of a file, within `seconds` if that is less than a file may take anyway.

        Never raises for what is in the file; OSError if there is no process to be had.
        """
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size == 0:
            return Extraction(State.EMPTY, "no bytes")
        if size > limits.INPUT_BYTES:
            return Extraction(State.TOO_LARGE, f"{size} bytes, more than the limit of {limits.INPUT_BYTES}")
        try:
            found, _ = self.children.ask("extract", [data], seconds=seconds, name=name, type=declared_type, ocr=self._ocr)
            return _extraction(found)
        except ChildFailed as failed:
            return Extraction(_state(failed), str(failed))
        except (ValueError, KeyError, TypeError):
            return Extraction(State.BROKEN, "the reader's answer makes no sense")

    def draw(self, data: bytes, page: int, wait: float | None = None) -> Picture:
        """A page of a PDF, counted from 1, as PNG; page 0 for the number of pages alone. Never raises for what is in it.

        ChildrenBusy after `wait` seconds without a free child.
        """
        try:
            with self.children.talk(wait) as talk:
                found, pieces = talk.ask("draw", [data], page=page)
            return _picture(found, pieces)
        except ChildFailed as failed:
            return Picture(_state(failed), str(failed))
        except (ValueError, KeyError, TypeError, IndexError):
            return Picture(State.BROKEN, "the reader's answer makes no sense")

    def close(self) -> None:
        """Ends all children at once, also those at work: their callers see a broken file."""
        self.children.close()


def _extraction(found: dict[str, Any]) -> Extraction:
    pages = tuple(Page(int(number), str(text), str(file)) for number, text, file in found["pages"])
    return Extraction(State(found["state"]), str(found["reason"]), pages, str(found["kind"]))


def _picture(found: dict[str, Any], pieces: Sequence[bytes]) -> Picture:
    return Picture(State(found["state"]), str(found["reason"]), int(found["pages"]), pieces[0])


def _state(failed: ChildFailed) -> State:
    if failed.is_late:
        return State.TIMEOUT
    return State.TOO_LARGE if failed.is_too_large else State.BROKEN
