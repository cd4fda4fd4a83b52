"""The export as a workflow: freeze → collect → convert → plan → pack → manifest → sign → seal → verify → deliver → publish.

Messages are collected, and volumes packed, in parallel. Every step may be repeated: it writes whole files under fixed names.
The rollback of the first step removes everything.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Connection

from archiver import __version__
from archiver.errors import ArchiverError
from archiver.evidence import signing
from archiver.exports import statements as sql
from archiver.exports.collecting import (
    KEPT_DAYS,
    CollectedPart,
    FrozenSet,
    collect,
    disk_check_of,
    freeze,
    owner_of,
    remove_everything,
    remove_part,
)
from archiver.exports.converting import ConvertedPart, convert, converted_parts, remove_converted
from archiver.exports.delivery import deliver_output
from archiver.exports.package_files import PackageFolder, whole_file
from archiver.exports.packing import Collected, pack_volume, remove_packed, seal_last
from archiver.exports.selection import PDF, ExportInput
from archiver.exports.verifying import SUBJECT, verify_export
from archiver.exports.volume_plan import VolumePlan, plan_volumes
from archiver.store.capacity import explain_full_disk
from archiver.workflows.definition import Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun

_PIECE_BYTES = 1 << 20
_LONG_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    sha256: str


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    messages: int
    missing: int
    key_id: str


class BrokenExport(ArchiverError):
    """What was written is not what was collected."""


def plan_packing(run: StepRun) -> VolumePlan:
    given: ExportInput = run.input
    is_single = given.output is not None or given.options.format == "csv"
    return plan_volumes(_collected(run).sizes(), given.options.volume_bytes, is_single=is_single)


def _collected(run: StepRun) -> Collected:
    frozen: FrozenSet = run.result("freeze")
    return Collected(run.input.files, frozen.part_messages, frozen.parts, is_pdf=run.input.options.format == PDF)


def pack_volumes(run: StepRun) -> Nothing:
    """Of one part of the plan."""
    plan: VolumePlan = run.result("plan")
    with explain_full_disk():
        for number in plan.numbers(run.part):
            numbers = plan.messages(number)
            pack_volume(_collected(run), run.input.options, number, numbers, run.report, disk_check_of(run))
    return Nothing()


def undo_packing(run: StepRun) -> None:
    remove_packed(run.input.files, run.result("plan").numbers(run.part))


def write_manifest(run: StepRun) -> WrittenManifest:
    files: PackageFolder = run.input.files
    plan: VolumePlan = run.result("plan")
    digest = hashlib.sha256()
    with explain_full_disk(), whole_file(files.manifest) as out:
        for piece in _manifest_pieces(orjson.dumps(_head(run, run.input)) + b"\n", files, plan.volumes):
            digest.update(piece)
            out.write(piece)
    return WrittenManifest(digest.hexdigest())


def _manifest_pieces(head: bytes, files: PackageFolder, volumes: int) -> Iterator[bytes]:
    yield head
    for number in range(1, volumes + 1):
        with files.lines(number).open("rb") as lines:
            while piece := lines.read(_PIECE_BYTES):
                yield piece


def _head(run: StepRun, given: ExportInput) -> dict[str, Any]:
    frozen: FrozenSet = run.result("freeze")
    selection = {name: value for name, value in asdict(given.selection).items() if value}
    return {
        "kind": "export",
        "version": 1,
        "export": run.run_id,
        "archive": frozen.archive_id,
        "archiver_version": __version__,
        "requested_by": given.requested_by,
        "frozen_at": frozen.at,
        "selection": selection,
        "format": given.options.format,
        "layout": given.options.layout,
        "volumes": run.result("plan").volumes,
        "messages": frozen.messages,
        "bytes": frozen.bytes,
        "not_searchable": frozen.not_searchable,
        "not_searchable_reasons": frozen.not_searchable_reasons,
    }


def sign_manifest(run: StepRun) -> Nothing:
    """Over the SHA-256 of the manifest, with its subject (archiver.evidence.signing)."""
    files: PackageFolder = run.input.files
    with run.resources.engine.connect() as connection:
        key = signing.load_key(connection, run.resources.keyring)
    if key is None:
        raise ArchiverError("this archive has no signing key yet: start its ingestion worker once")
    digest = run.result("manifest").sha256
    signature = {
        "algorithm": "Ed25519",
        "subject": SUBJECT,
        "manifest_sha256": digest,
        "key_id": key.id,
        "public_key": base64.b64encode(key.public_bytes).decode(),
        "signature": base64.b64encode(key.sign(SUBJECT, bytes.fromhex(digest))).decode(),
    }
    with explain_full_disk():
        with whole_file(files.signature) as out:
            out.write(orjson.dumps(signature, option=orjson.OPT_INDENT_2) + b"\n")
        with whole_file(files.public_key) as out:
            out.write(signing.public_pem(key.public_bytes).encode())
    return Nothing()


def seal_volumes(run: StepRun) -> Nothing:
    files: PackageFolder = run.input.files
    volumes = run.result("plan").volumes
    with explain_full_disk():
        disk_check_of(run)(files.packed(volumes).stat().st_size)
        seal_last(files, volumes)
    return Nothing()


def unseal_volumes(run: StepRun) -> None:
    for volume in run.input.files.volumes():
        volume.unlink(missing_ok=True)


def read_back(run: StepRun) -> VerifiedExport:
    """Reads every byte that was written, as the receiver will."""
    files: PackageFolder = run.input.files
    with run.resources.engine.connect() as connection:
        key = signing.load_key(connection, run.resources.keyring)
    check = verify_export(files.volumes(), key.public_bytes if key else None, run.report)
    if check.problems:
        raise BrokenExport(f"the export could not be read back: {check.problems[0]}")
    return VerifiedExport(check.messages, check.missing, check.key_id)


def deliver(run: StepRun) -> Nothing:
    """To the file that a command asked for."""
    given: ExportInput = run.input
    if given.output is not None:
        target = Path(given.output)
        with explain_full_disk():
            deliver_output(given.files, given.options.format, target)
        check = verify_export([target])
        if check.problems:
            raise BrokenExport(f"{target} could not be read back: {check.problems[0]}")
    return Nothing()


def publish(run: StepRun) -> Nothing:
    """From here on its owner can download it."""
    given: ExportInput = run.input
    frozen: FrozenSet = run.result("freeze")
    verified: VerifiedExport = run.result("verify")
    with run.resources.engine.connect() as connection:
        owner_of(connection, given)  # may they still export at all?
    if given.output is not None:
        shutil.rmtree(given.files.path, ignore_errors=True)
        paths = [Path(given.output)]
    else:
        shutil.rmtree(given.files.parts, ignore_errors=True)
        paths = given.files.volumes()
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in paths]
    values = {"messages": verified.messages, "bytes": frozen.bytes, "failed": verified.missing, "days": KEPT_DAYS}

    def make_available(connection: Connection) -> None:
        sql.set_done(connection, run.run_id, values, files)
        sql.unfreeze(connection, run.run_id)

    run.with_result(make_available)
    return Nothing()


def collected_parts(run: StepRun) -> int:
    return int(run.result("freeze").parts)


def packed_parts(run: StepRun) -> int:
    return int(run.result("plan").parts)


EXPORT = Workflow(
    "export",
    2,
    ExportInput,
    (
        (Step("freeze", freeze, FrozenSet, rollback=remove_everything),),
        (Step("collect", collect, CollectedPart, rollback=remove_part, parts=collected_parts),),
        (Step("convert", convert, ConvertedPart, rollback=remove_converted, parts=converted_parts),),
        (Step("plan", plan_packing, VolumePlan),),
        (Step("pack", pack_volumes, rollback=undo_packing, parts=packed_parts, timeout_seconds=_LONG_SECONDS),),
        (Step("manifest", write_manifest, WrittenManifest),),
        (Step("sign", sign_manifest),),
        (Step("seal", seal_volumes, rollback=unseal_volumes),),
        (Step("verify", read_back, VerifiedExport, timeout_seconds=_LONG_SECONDS),),
        (Step("deliver", deliver, timeout_seconds=_LONG_SECONDS),),
        (Step("publish", publish),),
    ),
    open_runs_per_owner=5,
)
