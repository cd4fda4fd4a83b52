"""The database as one file: `pg_dump` into a sealed file and back. Plain text never reaches the disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import UUID

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from archiver.db.states import PackState
from archiver.errors import ArchiverError
from archiver.store.keys import PackKeys
from archiver.store.sealed_file import seal_pieces, unseal_pieces
from archiver.supervisor.postgres import installed_versions

_PIECE_BYTES = 1 << 20
_DUMP = ("--format=custom", "--no-owner", "--no-privileges")
_LOAD = ("--no-owner", "--no-privileges", "--clean", "--if-exists", "--single-transaction")
_PACKS_ONLY = ("--data-only", "--table=packs", "--file=-")


def dump_pieces(database_url: str, keys: PackKeys, snapshot: str) -> Iterator[bytes]:
    """The sealed dump. `snapshot`: an exported snapshot, whose view of the database is dumped. Raises before the last piece
    counts as read if the dump is not complete."""
    with _run(database_url, "pg_dump", *_DUMP, f"--snapshot={snapshot}", stdout=subprocess.PIPE) as process:
        yield from seal_pieces(keys.active, iter(lambda: _read(process.stdout), b""))


def load_dump(path: Path, database_url: str, keys: PackKeys) -> None:
    """Fills an empty database, completely or not at all. Raises Damage for a dump that was changed."""
    with _run(database_url, "pg_restore", *_LOAD) as process:
        _feed(process, unseal_pieces(keys, path))


def packs_in(path: Path, keys: PackKeys) -> dict[UUID, int]:
    """The packs that the database in a dump refers to, and the size that each must have at least."""
    with tempfile.TemporaryFile() as listed:
        with _run(None, "pg_restore", *_PACKS_ONLY, stdout=listed) as process:
            _feed(process, unseal_pieces(keys, path))
        listed.seek(0)
        return dict(_parse_packs(line.decode().rstrip("\n") for line in listed))


def _parse_packs(lines: Iterator[str]) -> Iterator[tuple[UUID, int]]:
    """Reads the COPY statement of the table `packs`."""
    for line in lines:
        if line.startswith("COPY ") and line.endswith(" FROM stdin;"):
            columns = line[line.index("(") + 1 : line.rindex(")")].split(", ")
            for row in iter(lambda: next(lines), "\\."):
                values = dict(zip(columns, row.split("\t"), strict=True))
                if values["state"] != PackState.RETIRED:
                    yield UUID(values["id"]), int(values["size_bytes"])


def _feed(process: subprocess.Popen[bytes], pieces: Iterable[bytes]) -> None:
    assert process.stdin is not None
    try:
        for piece in pieces:
            process.stdin.write(piece)
        process.stdin.close()
    except BrokenPipeError:
        return  # the program ended early; its exit code is checked later


def _read(pipe: IO[bytes] | None) -> bytes:
    assert pipe is not None
    return pipe.read(_PIECE_BYTES)


@contextmanager
def _run(
    database_url: str | None, program: str, *arguments: str, stdout: IO[bytes] | int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Killed if the block fails, so that nothing is committed. The password is passed in the environment: arguments are visible
    to all users."""
    address, environment = [], dict(os.environ)
    if database_url is not None:
        parameters = conninfo_to_dict(database_url)
        password = str(parameters.pop("password", "") or "")
        address = [f"--dbname={make_conninfo('', **parameters)}"]
        environment |= {"PGPASSWORD": password} if password else {}
    versions = installed_versions()
    command = [str(versions[max(versions)] / program), *address, *arguments]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=errors, env=environment)
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            _close(process)
        if process.returncode:
            errors.seek(0)
            reasons = errors.read().decode(errors="replace").strip().splitlines()
            raise ArchiverError(f"{program} failed: {(reasons or ['no reason given'])[-1]}")


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
    process.wait()
