"""Bytes on their way in: straight to disk, hashed on the way, gone when nobody needs them any more."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from archiver.config import Settings
from archiver.services.room import check_disk, full_disk_told

_PIECE_BYTES = 1 << 20


@asynccontextmanager
async def received(request: Request, settings: Settings) -> AsyncIterator[tuple[Path, bytes, int]]:
    """The whole body as a file, with its SHA-256 and size."""
    folder = settings.archiver_data / "scratch"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix="in-") as file:
        try:
            async for piece in pieces(request):
                digest.update(piece)
                size += len(piece)
                await run_in_threadpool(_write, settings, file, piece)
        except ClientDisconnect:
            raise HTTPException(400, "the connection broke off") from None
        yield Path(file.name), digest.digest(), size


def _write(settings: Settings, file: IO[bytes], piece: bytes) -> None:
    """Raises NoRoom while the bytes arrive: how many there will be, only their sender knows."""
    check_disk(settings, len(piece))
    with full_disk_told():
        file.write(piece)
        file.flush()


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """Joined to pieces that are worth a trip to another thread."""
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) >= _PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
