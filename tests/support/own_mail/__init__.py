"""Mail of our own making, in families: what is varied in a family is all that its messages differ in.

The expected values come from how a message was made, never from our own reader. The hand-made messages beside them are in
tests/corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.own_mail import broken, content, envelopes, reports
from tests.support.own_mail.case import MailCase

FAMILIES = {"real": (content.cases, envelopes.cases), "bounces": (reports.cases,), "torture": (broken.cases,)}
"""By the folders that collections of mail have: mail as people send it, what machines report, and what breaks readers."""


def own_cases() -> Iterator[MailCase]:
    for families in FAMILIES.values():
        for family in families:
            yield from family()


def write_own_corpus(folder: Path) -> Path:
    """The same as files, as a collection of mail lies on a disk: below `public`, in folders, one message in each file."""
    for kind, families in FAMILIES.items():
        place = folder / "public" / kind
        place.mkdir(parents=True, exist_ok=True)
        for family in families:
            for case in family():
                (place / f"{case.name}.eml").write_bytes(case.raw)
    for path in sorted((Path(__file__).parents[2] / "corpus").glob("*.eml")):
        (folder / "public" / "torture" / path.name).write_bytes(path.read_bytes())
    return folder
