"""The whole proof that the audit log is what it was: its chain, and every anchor in the packs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from archiver.services import audit
from archiver.services.audit import Verified
from archiver.services.audit_anchors import Anchors
from archiver.store.anchors import Anchor
from archiver.store.keys import PackKeys


def prove(anchors: Anchors, head: str | None = None) -> Verified:
    found = sorted(set(anchors.read_all()), key=lambda anchor: anchor.at)  # compaction leaves a frame in two packs for a day
    wanted, met = {(anchor.entry, anchor.hash) for anchor in found}, set[tuple[int, bytes]]()

    def seen(number: int, digest: bytes) -> None:
        if (number, digest) in wanted:
            met.add((number, digest))

    chain = audit.verify(anchors.engine, head, seen)
    misfits = [anchor for anchor in found if (anchor.entry, anchor.hash) not in met]
    pardon = next((anchor for anchor in reversed(found) if anchor.accepts), None)
    pardoned = [anchor for anchor in misfits if pardon and anchor.at < pardon.at]
    rest = misfits[len(pardoned) :]  # both in the order of time
    broken = [*_forged(found, anchors.archive.keys), *_told(rest)]
    accepted = tuple(f"{line}; accepted: {pardon.accepts}" for line in _told(pardoned)) if pardon else ()
    return dataclasses.replace(
        chain,
        broken=(*chain.broken, *broken),
        anchors=len(found),
        anchored_entries=max((number for number, _ in met), default=0),
        accepted=accepted,
    )


def _told(misfits: Sequence[Anchor]) -> Iterator[str]:
    if misfits:
        first, last, most = misfits[0].at, misfits[-1].at, max(anchor.entry for anchor in misfits)
        yield (
            f"{len(misfits)} anchor(s) of {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, up to entry {most}, do not fit: "
            "the log was cut off or written anew"
        )


def _forged(found: Sequence[Anchor], keys: PackKeys) -> Iterator[str]:
    """(With a key that was given up since, only the frame's own authentication is left, which is enough.)"""
    known = {key.fingerprint.hex() for key in keys}
    for anchor in found:
        if anchor.key in known and not anchor.is_genuine(keys):
            yield f"the anchor of {anchor.at:%Y-%m-%d %H:%M:%S} UTC has a wrong MAC"
