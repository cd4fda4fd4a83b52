"""What must hold for an archive at any moment, compared with the plain model of it."""

from __future__ import annotations

from archiver.errors import ArchiverError
from archiver.maintenance.recovery.adopt import adopt
from archiver.store.errors import Damage
from tests.model.expected import Expected
from tests.model.subject import Subject


def start(subject: Subject) -> None:
    """What every start of the program does before it works."""
    adopt(subject.engine, subject.archive, rest_seconds=0)


def check(subject: Subject, expected: Expected) -> None:
    found = subject.present()
    present = {(place[0], sha256) for place, (sha256, _) in found.items()}
    kept = {place for place in expected.live if place[1] not in expected.at_risk}
    if expected.journal_is_whole:
        assert kept <= present, f"lost: {kept - present}"
        assert not (expected.deleted & present), f"back from the dead: {expected.deleted & present}"
    assert {sha256 for _, sha256 in kept} <= {sha256 for _, sha256 in present}, "mail was lost with a pack that did not hold it"
    for _, sha256 in kept:
        assert is_readable(subject, sha256), f"can't be read: {sha256.hex()}"
    allowed = {sha256 for _, sha256 in {*expected.live, *expected.attempted}} | expected.at_risk
    assert not expected.journal_is_whole or {sha256 for _, sha256 in present} <= allowed, "mail that nobody handed in"
    for (mailbox, key), folder in expected.folders.items():
        if folder and (mailbox, key) in found and found[mailbox, key][0] not in expected.at_risk:
            assert found[mailbox, key][1] == folder, f"{key} is in another folder"


def is_readable(subject: Subject, sha256: bytes) -> bool:
    try:
        subject.archive.read(sha256)
    except (Damage, ArchiverError):
        return False
    return True
