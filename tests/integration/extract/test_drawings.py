"""Pages as pictures for many people: one at a time for each of them, each page once, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psutil
import pytest

from archiver.errors import TooMany
from archiver.extract import ExtractionState
from archiver.extract.pool import ChildrenBusy
from archiver.reading import previews as module
from archiver.reading.previews import Drawings, PreviewPage
from tests.browser.mails import one_page_pdf
from tests.support.waiting import DEADLINE_SECONDS

PDF = one_page_pdf("Marsupial invoice")
SHA = b"s" * 32


@pytest.fixture
def drawings() -> Iterator[Drawings]:
    made = Drawings(seconds=DEADLINE_SECONDS, wait_seconds=0.5)
    yield made
    made.close()


def child() -> psutil.Process:
    (found,) = [one for one in psutil.Process().children() if "archiver.extract.child" in one.cmdline()]
    return found


def unwanted() -> bytes:
    raise AssertionError("it is at hand")


def test_a_page_is_drawn_once_for_all(drawings: Drawings) -> None:
    first = drawings.draw("ann", PreviewPage(SHA, 0, 1), lambda: PDF)
    assert first.png.startswith(b"\x89PNG")
    assert drawings.draw("bob", PreviewPage(SHA, 0, 1), unwanted) is first
    assert drawings.draw("bob", PreviewPage(SHA, 0, 0), lambda: PDF).pages == 1


def test_what_could_not_be_drawn_is_remembered(drawings: Drawings) -> None:
    assert drawings.draw("ann", PreviewPage(SHA, 1, 1), lambda: b"%PDF-1.4 and no more").state is ExtractionState.BROKEN
    assert drawings.draw("ann", PreviewPage(SHA, 1, 1), unwanted).state is ExtractionState.BROKEN


def test_what_is_kept_is_bounded(drawings: Drawings, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(drawings.draw("ann", PreviewPage(SHA, 0, 1), lambda: PDF).png)
    monkeypatch.setattr(module, "_KEPT_BYTES", 3 * size)
    for number in range(1, 6):
        drawings.draw("ann", PreviewPage(SHA, number, 1), lambda: PDF)
    kept = [number for number in range(6) if drawings.known(PreviewPage(SHA, number, 1)) is not None]
    assert kept == [4, 5]


def test_one_at_a_time_for_each_and_a_wait_that_ends(drawings: Drawings) -> None:
    drawings.draw("ann", PreviewPage(SHA, 0, 1), lambda: PDF)
    reader = child()
    reader.suspend()
    entered = threading.Event()

    def data() -> bytes:
        entered.set()
        return PDF

    slow = threading.Thread(target=lambda: drawings.draw("ann", PreviewPage(SHA, 1, 1), data))
    slow.start()
    assert entered.wait(DEADLINE_SECONDS)
    with pytest.raises(TooMany, match="your earlier requests"):
        drawings.draw("ann", PreviewPage(SHA, 2, 1), unwanted)
    with pytest.raises(ChildrenBusy, match="busy"):
        drawings.draw("bob", PreviewPage(SHA, 2, 1), lambda: PDF)
    assert drawings.draw("bob", PreviewPage(SHA, 0, 1), unwanted).png, "what is at hand needs no turn"
    reader.resume()
    slow.join(DEADLINE_SECONDS)
    assert not slow.is_alive()
    assert drawings.draw("ann", PreviewPage(SHA, 1, 1), unwanted).png
