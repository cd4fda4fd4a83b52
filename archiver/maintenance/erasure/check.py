"""What `verify` says about erasures: why mail is missing, whether the receipts are genuine, and whether bytes are back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import orjson
from sqlalchemy import Connection

from archiver.evidence import signing
from archiver.maintenance.checks.verify_segment import Unclaimed
from archiver.maintenance.erasure.eraser import SUBJECT, list_digest
from archiver.quantity import quantity
from archiver.retention import erasures
from archiver.retention.erasures import Erasure


def receipt_faults(connection: Connection, erasure: Erasure) -> list[str]:
    """What is wrong with the receipt of a finished erasure."""
    if erasure.receipt is None or erasure.signature is None:
        return ["there is no receipt yet"]
    keys = {one.id: one.public_bytes for one in signing.public_keys(connection)}
    digest = hashlib.sha256(erasure.receipt.encode()).digest()
    faults = []
    if not signing.is_signed(keys.get(erasure.key or "", b""), SUBJECT, digest, erasure.signature):
        faults.append("the signature does not fit the text of the receipt")
    if orjson.loads(erasure.receipt)["list_sha256"] != list_digest(list(erasures.erased_units(connection, erasure))):
        faults.append("the list of what was erased is not the one of the receipt")
    return faults


def check_erasures(
    connection: Connection, unclaimed: Iterable[Unclaimed]
) -> tuple[list[str], list[tuple[Unclaimed | None, str]]]:
    """Notes that explain what is missing, and problems."""
    notes: list[str] = []
    problems: list[tuple[Unclaimed | None, str]] = []
    frames = {one.sha256: one for one in unclaimed}
    for erasure in erasures.list_erasures(connection, 1_000_000):
        if erasure.deleted_at is None:
            continue
        hashes = {bytes.fromhex(line.rpartition(" ")[2]) for line in erasures.erased_units(connection, erasure)}
        there = [frames[one] for one in sorted(hashes & frames.keys())]
        about = f"erasure {erasure.name} ({erasure.deleted_at:%Y-%m-%d})"
        counts = f"{quantity(erasure.messages, 'message')} erased on request"
        if erasure.finished_at is None:
            notes.append(f"{about}: {counts}; {len(there)} of them still in packs that are to be replaced")
            continue
        notes.append(f"{about}: {counts}, as the signed receipt says")
        problems += [(None, f"{about}: {fault}") for fault in receipt_faults(connection, erasure)]
        problems += [
            (one, f"{about}: an erased message is in this pack again: `archiver compact --all` removes it") for one in there
        ]
    return notes, problems
