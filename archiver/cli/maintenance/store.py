"""`verify`, `rebuild`, `compact`, `keys`: maintenance of the archive."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer

from archiver.cli.terminal.archive import archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.config import load_settings
from archiver.errors import UsageError
from archiver.quantity import quantity
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder

_SETTLE_SECONDS = 60
"""How long a batch may take from its object in the bucket into the database."""

keys_app = typer.Typer(
    name="keys", help="List and rotate the keys that encrypt the packs and the stored credentials.", no_args_is_help=True
)


def verify(
    full: Annotated[bool, typer.Option("--full", help="Read every message and verify its SHA-256.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start from the beginning instead of resuming an interrupted run.")
    ] = False,
    json: Json = False,
) -> None:
    """Verify the archive: sizes, checksums, seals and counts, with --full every hash. Exits with 1 if something is damaged.

    An interrupted run resumes where it stopped.
    """
    from archiver.maintenance.checks.verify import verify as run

    with archive_for("verify") as at, progress_bar("Verifying", shown=not json) as progress:
        mark = at.settings.archiver_data / "verify.json"
        since = None if restart else _resume_point(mark, full)
        mark.write_bytes(orjson.dumps({"started_at": since or datetime.now(UTC), "full": full}))
        settle_seconds = _SETTLE_SECONDS if at.settings.storage_type == "s3" else 0
        report = run(at.engine, at.archive, full=full, since=since, progress=progress, settle_seconds=settle_seconds)
        mark.unlink(missing_ok=True)
    if json:
        print_json({"healthy": report.is_healthy, **asdict(report)})
    else:
        for problem in report.problems:
            ids = ", ".join(map(str, problem.messages[:5]))
            touched = f"; affects {quantity(len(problem.messages), 'message')}: {ids}"
            console.print(
                f"[red]damage[/] {problem.pack} at {problem.offset}: {problem.what}{touched if problem.messages else ''}"
            )
        for note in report.notes:
            console.print(f"[dim]note[/]   {note}")
        verdict = "The archive is whole." if report.is_healthy else f"Found {quantity(len(report.problems), 'problem')}."
        read = f"{quantity(report.packs, 'pack')}, {quantity(report.frames, 'frame')}, {report.bytes / 1e6:,.1f} MB read"
        verified = f", {quantity(report.messages, 'message')} verified" if full else ""
        console.print(f"{verdict} {read}{verified}.")
    raise typer.Exit(0 if report.is_healthy else 1)


def _resume_point(mark: Path, full: bool) -> datetime | None:
    try:
        found = orjson.loads(mark.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return datetime.fromisoformat(found["started_at"]) if found.get("full") == full else None


def rebuild(json: Json = False) -> None:
    """Fill an empty database from the packs alone: sources (without credentials), mailboxes, messages, copies, deletions.

    Exits with 3 if a pack is damaged or a copy has lost its message; everything else is restored nevertheless.
    """
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.evidence.anchors import Anchors
    from archiver.maintenance.recovery.rebuild import rebuild as run

    with archive_for("rebuild", migrate=True) as at, progress_bar("Rebuilding", shown=not json) as progress:
        done = run(at.engine, at.archive, progress)
        Anchors(at.engine, at.archive, at.settings.archiver_data).accept(LOCAL_OPERATOR, "the database was rebuilt")
    if json:
        print_json(asdict(done))
    else:
        copies = quantity(done.copies, "copy")
        console.print(f"Restored {quantity(done.messages, 'message')} and {copies} from {quantity(done.packs, 'pack')}.")
        if done.found:
            console.print(f"{quantity(done.found, 'message')} without a mailbox: now in the mailbox 'found in the store'.")
        if done.conflicts:
            console.print(f"{quantity(done.conflicts, 'key')} with more than one message: all versions are kept.")
        for deletion in done.unconfirmed:
            console.print(f"[yellow]not deleted[/] {deletion}")
        for damage in done.damage[:20]:
            console.print(f"[red]damage[/] {damage}")
        if len(done.damage) > 20:
            console.print(f"[red]damage[/] and {len(done.damage) - 20:,} more; --json lists everything")
        if done.lost_copies:
            console.print(f"[red]{quantity(done.lost_copies, 'copy')} without their message[/]")
    raise typer.Exit(3 if done.damage or done.lost_copies else 0)


def compact(
    rekey: Annotated[bool, typer.Option("--rekey", help="Re-encrypt what was written with an older key.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Rewrite every pack, not only small and wasteful ones.")] = False,
    json: Json = False,
) -> None:
    """Free space: drop deleted content and merge small packs into large ones. Safe while the archive is in use."""
    from archiver.maintenance.compact import compact as run
    from archiver.store.capacity import check_disk

    with archive_for("compact") as at:
        scratch, check_room = at.settings.archiver_data / "scratch", partial(check_disk, at.settings)
        done = run(at.engine, at.archive, scratch, rekey=rekey, everything=everything, check_room=check_room)
    if json:
        print_json(asdict(done))
    else:
        console.print(
            f"Merged {quantity(done.packs_before, 'pack')} into {done.packs_after}: {done.bytes_before / 1e6:,.1f} MB → "
            f"{done.bytes_after / 1e6:,.1f} MB. Removed {quantity(done.removed, 'old file')}."
        )
        if done.adopted:
            console.print(f"Added {quantity(done.adopted, 'message')} from the packs that the database did not know.")
        for damage in done.damage[:20]:
            console.print(f"[red]{damage}[/]: the pack was left unchanged. Run `archiver verify`.")
    raise typer.Exit(3 if done.damage else 0)


@keys_app.command("list")
def list_keys(json: Json = False) -> None:
    """List the ids of the storage keys; the active one encrypts. The keys themselves are never shown."""
    from archiver.secrets import storage_keyring

    keyring = storage_keyring(load_settings())
    if json:
        print_json({"active": keyring.active, "keys": list(keyring.keys)})
    else:
        for key_id in keyring.keys:
            console.print(f"{key_id}{' (active)' if key_id == keyring.active else ''}")


@keys_app.command("rotate")
def rotate(
    credentials: Annotated[
        bool,
        typer.Option("--credentials", help="Rotate the key that seals source passwords and second factors (ENCRYPTION_KEY)."),
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget-old", help="With --credentials: remove the old keys, which older backups still need.")
    ] = False,
    json: Json = False,
) -> None:
    """Add a new storage key, which encrypts from the next start on. Afterwards `archiver compact --rekey` retires the old ones.

    With --credentials, all sealed values are immediately sealed again with a new key; stop `archiver up` first. Run the command
    again if it is interrupted.
    """
    if credentials:
        return _rotate_credentials(forget=forget, json=json)
    if forget:
        raise UsageError("--forget-old can only be used with --credentials")
    from archiver.maintenance.keys import rotate_storage_key

    settings = load_settings()
    keyring = rotate_storage_key(settings)
    if json:
        print_json({"active": keyring.active, "keys": list(keyring.keys)})
    else:
        console.print(f"The key {keyring.active} encrypts from the next start on. Store a copy of the key file elsewhere.")
    return None


def _rotate_credentials(*, forget: bool, json: bool) -> None:
    from archiver.maintenance.reseal import rotate as run

    if ask_status(DataFolder(load_settings().archiver_data)) is not None:
        raise UsageError("stop `archiver up` and all other commands first: they only know the old key")
    with archive_for("keys") as at:
        done = run(at.engine, at.archive, at.settings, forget=forget)
    if json:
        return print_json(asdict(done))
    old = "The old key was removed" if done.forgotten else "The old key stays in the key file, for older backups"
    sealed = f"Sealed {quantity(done.resealed, 'value')} with the key {done.active}"
    console.print(f"{sealed}. {old}. Store a copy of the key file elsewhere.")
    return None
