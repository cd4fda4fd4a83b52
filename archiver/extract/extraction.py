"""The outcome of an extraction."""

from dataclasses import dataclass
from enum import StrEnum

EXTRACTOR_VERSION = 2  # rises when the same bytes give another outcome; only then is a failed extraction tried again


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
    """A page, slide or sheet; what has no pages is page 0. `file` is the path inside an archive or mail."""

    number: int
    text: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The text of a file, or why there is none. It can have both: pages, and a reason why some are missing."""

    state: ExtractionState
    reason: str = ""
    pages: tuple[TextPage, ...] = ()
    kind: str = ""  # what the content is, whatever its name says
    needs_ocr: bool = False  # there are pictures in it that may hold text, and nothing has read them
    extractor_version: int = EXTRACTOR_VERSION

    @property
    def text(self) -> str:
        return "\n".join(page.text for page in self.pages)


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of a document as it looks, or why it can't be shown; and how many pages there are."""

    state: ExtractionState
    reason: str = ""
    pages: int = 0
    png: bytes = b""


class ExtractionRefused(Exception):
    """A reader can't give text; the state says what that means for the file."""

    def __init__(self, state: ExtractionState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
