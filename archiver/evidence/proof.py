"""The full proof that the audit log was not changed: its chain, and every anchor in the packs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from archiver.access import audit
from archiver.access.audit import Verified
from archiver.evidence.anchors import Anchors
from archiver.quantity import quantity
from archiver.store.anchors import Anchor
from archiver.store.keys import PackKeys


def prove(anchors: Anchors, head: str | None = None) -> Verified:
    found = sorted(set(anchors.read_all()), key=lambda anchor: anchor.at)  # compaction leaves a frame in two packs for a day
    wanted, met = {(anchor.entry, anchor.hash) for anchor in found}, set[tuple[int, bytes]]()

    def match(number: int, digest: bytes) -> None:
        if (number, digest) in wanted:
            met.add((number, digest))

    chain = audit.verify(anchors.engine, head, match)
    misfits = [anchor for anchor in found if (anchor.entry, anchor.hash) not in met]
    acceptance = next((anchor for anchor in reversed(found) if anchor.accepts), None)
    excused = [anchor for anchor in misfits if acceptance and anchor.at < acceptance.at]
    rest = misfits[len(excused) :]  # both are in chronological order
    broken = [*_find_forged(found, anchors.archive.keys), *_describe(rest)]
    accepted = tuple(f"{line}; accepted: {acceptance.accepts}" for line in _describe(excused)) if acceptance else ()
    return dataclasses.replace(
        chain,
        broken=(*chain.broken, *broken),
        anchors=len(found),
        anchored_entries=max((number for number, _ in met), default=0),
        accepted=accepted,
    )


def _describe(misfits: Sequence[Anchor]) -> Iterator[str]:
    if misfits:
        first, last, entry = misfits[0].at, misfits[-1].at, max(anchor.entry for anchor in misfits)
        yield (
            f"the log was truncated or rewritten: it does not match {quantity(len(misfits), 'anchor')} of "
            f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, up to entry {entry}"
        )


def _find_forged(found: Sequence[Anchor], keys: PackKeys) -> Iterator[str]:
    """For a key that was removed since, only the frame's own authentication is left, which is enough."""
    known = {key.fingerprint.hex() for key in keys}
    for anchor in found:
        if anchor.key in known and not anchor.is_genuine(keys):
            yield f"the anchor of {anchor.at:%Y-%m-%d %H:%M:%S} UTC has a wrong MAC"
