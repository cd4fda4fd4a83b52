"""The outcome of an extraction."""

from dataclasses import dataclass
from enum import StrEnum

EXTRACTOR_VERSION = 1  # rises when the same bytes give another outcome; only then is a failed extraction tried again


class State(StrEnum):
    OK = "ok"
    EMPTY = "empty"
    ENCRYPTED = "encrypted"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Page:
    """A page, slide or sheet; what has no pages is page 0. `file` is the path inside an archive or mail."""

    number: int
    text: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The text of a file, or why there is none. It can have both: pages, and a reason why some are missing."""

    state: State
    reason: str = ""
    pages: tuple[Page, ...] = ()
    kind: str = ""  # what the content is, whatever its name says
    extractor_version: int = EXTRACTOR_VERSION

    @property
    def text(self) -> str:
        return "\n".join(page.text for page in self.pages)


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of a document as it looks, or why it can't be shown; and how many pages there are."""

    state: State
    reason: str = ""
    pages: int = 0
    png: bytes = b""


class Refused(Exception):
    """A reader can't give text; the state says what that means for the file."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
