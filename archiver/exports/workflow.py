"""The export as a workflow: freeze → collect (in parallel) → pack → manifest → sign → seal → verify → publish.

Every step may be repeated: it writes whole files under fixed names. The rollback of the first step removes everything.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from dataclasses import asdict, dataclass
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
    freeze,
    owner_of,
    remove_everything,
    remove_part,
)
from archiver.exports.package_files import PackageFolder, whole_file
from archiver.exports.packing import pack, remove_packed, seal_last
from archiver.exports.selection import ExportInput
from archiver.exports.verifying import SUBJECT, verify_export
from archiver.store.capacity import check_disk, explain_full_disk
from archiver.workflows.definition import Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun


@dataclass(frozen=True, slots=True)
class PackedVolumes:
    volumes: int


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


def pack_volumes(run: StepRun) -> PackedVolumes:
    given: ExportInput = run.input
    frozen: FrozenSet = run.result("freeze")
    settings = run.resources.settings
    remove_packed(given.files)
    with explain_full_disk():
        volumes = pack(
            given.files,
            given.options,
            frozen.parts,
            lambda done: run.report(done, frozen.messages),
            lambda size: check_disk(settings, size),
        )
    return PackedVolumes(volumes)


def undo_packing(run: StepRun) -> None:
    remove_packed(run.input.files)


def write_manifest(run: StepRun) -> WrittenManifest:
    given: ExportInput = run.input
    digest = hashlib.sha256()
    with explain_full_disk(), whole_file(given.files.manifest) as out, given.files.entries.open("rb") as entries:
        piece = orjson.dumps(_head(run, given)) + b"\n"
        while piece:
            digest.update(piece)
            out.write(piece)
            piece = entries.read(1 << 20)
    return WrittenManifest(digest.hexdigest())


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
        "volumes": run.result("pack").volumes,
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
    volumes = run.result("pack").volumes
    with explain_full_disk():
        check_disk(run.resources.settings, files.packed(volumes).stat().st_size)
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


def publish(run: StepRun) -> Nothing:
    """From here on its owner can download it."""
    given: ExportInput = run.input
    frozen: FrozenSet = run.result("freeze")
    verified: VerifiedExport = run.result("verify")
    with run.resources.engine.connect() as connection:
        owner_of(connection, given)  # may they still export at all?
    shutil.rmtree(given.files.parts, ignore_errors=True)
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in given.files.volumes()]
    values = {"messages": verified.messages, "bytes": frozen.bytes, "failed": verified.missing, "days": KEPT_DAYS}

    def make_available(connection: Connection) -> None:
        sql.set_done(connection, run.run_id, values, files)
        sql.unfreeze(connection, run.run_id)

    run.with_result(make_available)
    return Nothing()


def collected_parts(run: StepRun) -> int:
    return int(run.result("freeze").parts)


EXPORT = Workflow(
    "export",
    1,
    ExportInput,
    (
        (Step("freeze", freeze, FrozenSet, rollback=remove_everything),),
        (Step("collect", collect, CollectedPart, rollback=remove_part, parts=collected_parts),),
        (Step("pack", pack_volumes, PackedVolumes, rollback=undo_packing, timeout_seconds=12 * 3600),),
        (Step("manifest", write_manifest, WrittenManifest),),
        (Step("sign", sign_manifest),),
        (Step("seal", seal_volumes, rollback=unseal_volumes),),
        (Step("verify", read_back, VerifiedExport, timeout_seconds=12 * 3600),),
        (Step("publish", publish),),
    ),
    open_runs_per_owner=5,
)
