"""`verify`, `rebuild`, `compact`, `keys`: care of the archive."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer

from archiver.cli.archive import bar, opened
from archiver.cli.output import Json, console, print_json
from archiver.config import load_settings
from archiver.errors import UsageError
from archiver.stack.control import ask_status
from archiver.stack.folder import DataFolder

_SETTLE_SECONDS = 60
"""So long a batch may be on its way from its object in the bucket into the database."""

keys_app = typer.Typer(name="keys", help="The keys that the packs are encrypted with.", no_args_is_help=True)


def verify(
    full: Annotated[bool, typer.Option("--full", help="Read every message again and prove its SHA-256.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, also if an earlier run was stopped.")] = False,
    json: Json = False,
) -> None:
    """Prove that the archive is whole: sizes, checksums, seals and counts, with --full every hash. Ends with 1 on damage.

    A run that was stopped goes on where it was.
    """
    from archiver.services.verify import verify as run

    with opened("verify") as at, bar("Verifying", shown=not json) as progress:
        mark = at.settings.archiver_data / "verify.json"
        since = None if restart else _resumed(mark, full)
        mark.write_bytes(orjson.dumps({"started_at": since or datetime.now(UTC), "full": full}))
        settle_seconds = _SETTLE_SECONDS if at.settings.storage_type == "s3" else 0
        report = run(at.engine, at.archive, full=full, since=since, progress=progress, settle_seconds=settle_seconds)
        mark.unlink(missing_ok=True)
    if json:
        print_json({"healthy": report.is_healthy, **asdict(report)})
    else:
        for problem in report.problems:
            touched = f"; touches {len(problem.messages)} message(s): {', '.join(map(str, problem.messages[:5]))}"
            console.print(
                f"[red]damage[/] {problem.pack} at {problem.offset}: {problem.what}{touched if problem.messages else ''}"
            )
        for note in report.notes:
            console.print(f"[dim]note[/]   {note}")
        verdict = "The archive is whole." if report.is_healthy else f"{len(report.problems)} problem(s)."
        proved = f", {report.messages:,} messages proved" if full else ""
        console.print(f"{verdict} {report.packs} pack(s), {report.frames:,} frames, {report.bytes / 1e6:,.1f} MB read{proved}.")
    raise typer.Exit(0 if report.is_healthy else 1)


def _resumed(mark: Path, full: bool) -> datetime | None:
    try:
        found = orjson.loads(mark.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return datetime.fromisoformat(found["started_at"]) if found.get("full") == full else None


def rebuild(json: Json = False) -> None:
    """Fill an empty database from the packs alone: sources (without credentials), mailboxes, messages, copies, deletions.

    Ends with 3 if a pack is damaged or a copy has lost its message; everything else is there all the same.
    """
    from archiver.services.audit_anchors import Anchors
    from archiver.services.principal import LOCAL_OPERATOR
    from archiver.services.rebuild import rebuild as run

    with opened("rebuild", migrate=True) as at, bar("Rebuilding", shown=not json) as progress:
        done = run(at.engine, at.archive, progress)
        Anchors(at.engine, at.archive, at.settings.archiver_data).accept(LOCAL_OPERATOR, "the database was rebuilt")
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.messages:,} messages and {done.copies:,} copies from {done.packs} pack(s).")
        if done.found:
            console.print(f"{done.found:,} message(s) without a mailbox are kept in one called 'found in the store'.")
        if done.conflicts:
            console.print(f"{done.conflicts:,} key(s) have more than one message; all of them are kept.")
        for one in done.unconfirmed:
            console.print(f"[yellow]not deleted[/] {one}")
        for damage in done.damage[:20]:
            console.print(f"[red]damage[/] {damage}")
        if len(done.damage) > 20:
            console.print(f"[red]damage[/] and {len(done.damage) - 20:,} more; --json names all of it")
        if done.lost_copies:
            console.print(f"[red]{done.lost_copies:,} copies have lost their message[/]")
    raise typer.Exit(3 if done.damage or done.lost_copies else 0)


def compact(
    rekey: Annotated[bool, typer.Option("--rekey", help="Encrypt what was written with an older key anew.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Write every pack anew, not only small and wasteful ones.")] = False,
    json: Json = False,
) -> None:
    """Give space back: leave out what was deleted, and make large packs of small ones. Safe while others read and write."""
    from archiver.services.compact import compact as run
    from archiver.services.room import check_disk

    with opened("compact") as at:
        scratch, check_room = at.settings.archiver_data / "scratch", partial(check_disk, at.settings)
        done = run(at.engine, at.archive, scratch, rekey=rekey, everything=everything, check_room=check_room)
    if json:
        print_json(asdict(done))
    else:
        console.print(
            f"{done.packs_before} pack(s) became {done.packs_after}: "
            f"{done.bytes_before / 1e6:,.1f} MB → {done.bytes_after / 1e6:,.1f} MB; {done.removed} old file(s) removed."
        )
        if done.adopted:
            console.print(f"{done.adopted:,} message(s) that the database did not know were taken in from the packs.")
        for damage in done.damage[:20]:
            console.print(f"[red]{damage}[/]: the pack stays as it is. Run `archiver verify`.")
    raise typer.Exit(3 if done.damage else 0)


@keys_app.command("list")
def list_keys(json: Json = False) -> None:
    """The ids of the keys; the first one writes. The keys themselves are never shown."""
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
        bool, typer.Option("--credentials", help="The key that seals passwords of sources and second factors (ENCRYPTION_KEY).")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget-old", help="With --credentials: remove the old keys. Older backups need them.")
    ] = False,
    json: Json = False,
) -> None:
    """Add a new key, which writes after the next start. `archiver compact --rekey` then leaves the old ones without use.

    With --credentials, everything that is sealed is sealed again with the new key at once; stop `archiver up` first. A run that
    was stopped goes on when it is run again.
    """
    if credentials:
        return _rotate_credentials(forget=forget, json=json)
    if forget:
        raise UsageError("--forget-old goes with --credentials")
    from archiver.services.keys import rotate_storage_key

    settings = load_settings()
    keyring = rotate_storage_key(settings)
    if json:
        print_json({"active": keyring.active, "keys": list(keyring.keys)})
    else:
        console.print(f"The key {keyring.active} writes from the next start on. Keep a copy of the key file in another place.")
    return None


def _rotate_credentials(*, forget: bool, json: bool) -> None:
    from archiver.services.reseal import rotate as run

    if ask_status(DataFolder(load_settings().archiver_data)) is not None:
        raise UsageError("stop `archiver up` and all other commands first: they know the old key only")
    with opened("keys") as at:
        done = run(at.engine, at.archive, at.settings, forget=forget)
    if json:
        return print_json(asdict(done))
    kept = "The old key was removed" if done.forgotten else "The old key is still there, for older backups"
    console.print(f"{done.resealed:,} value(s) are sealed with the key {done.active} now. {kept}. Keep a copy of the key file.")
    return None
