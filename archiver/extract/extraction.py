"""The outcome of an extraction."""

from dataclasses import dataclass
from enum import StrEnum

EXTRACTOR_VERSION = 2  # increased when the same bytes give another result; only then is a failed extraction retried


class ExtractionState(StrEnum):
    OK = "ok"
    EMPTY = "empty"
    ENCRYPTED = "encrypted"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class TextPage:
    """A page, slide or sheet; a file without pages is page 0. `file` is the path inside an archive or mail."""

    number: int
    text: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The text of a file, or the reason why there is none. It may have both: pages, and a reason why others are missing."""

    state: ExtractionState
    reason: str = ""
    pages: tuple[TextPage, ...] = ()
    kind: str = ""  # the type of the content, regardless of its name
    needs_ocr: bool = False  # it has images that may contain text, which were not read
    extractor_version: int = EXTRACTOR_VERSION

    @property
    def text(self) -> str:
        return "\n".join(page.text for page in self.pages)


@dataclass(frozen=True, slots=True)
class Picture:
    """A rendered page of a document, or the reason why it can't be shown, and the number of pages."""

    state: ExtractionState
    reason: str = ""
    pages: int = 0
    png: bytes = b""


class ExtractionRefused(Exception):
    """A reader can't extract text; `state` says what that means for the file."""

    def __init__(self, state: ExtractionState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
