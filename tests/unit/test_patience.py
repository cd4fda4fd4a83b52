"""How long the attachments of one message may take."""

from archiver.extract import limits
from archiver.extract.extraction import Extraction, ExtractionState
from archiver.extract.patience import Patience


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_message_with_slow_attachments_ends() -> None:
    clock = Clock()
    patience, given = Patience(clock), []

    def slow(seconds: float) -> Extraction:
        given.append(seconds)
        clock.now += min(seconds, limits.SECONDS)  # what the pool allows each file
        return Extraction(ExtractionState.TIMEOUT, "slow")

    outcomes = [patience.spend(slow) for _ in range(5_000)]
    assert clock.now <= 2 * limits.MESSAGE_SECONDS + limits.SECONDS
    assert given[0] == limits.MESSAGE_SECONDS
    assert given[-1] == limits.HURRIED_SECONDS  # each still gets a moment, for a while
    assert all(one.state is ExtractionState.TIMEOUT for one in outcomes)
    assert "its message" in outcomes[-1].reason


def test_quick_ones_are_all_read() -> None:
    clock = Clock()
    patience = Patience(clock)

    def quick(_: float) -> Extraction:
        clock.now += 0.05
        return Extraction(ExtractionState.OK)

    assert all(patience.spend(quick).state is ExtractionState.OK for _ in range(5_000))
