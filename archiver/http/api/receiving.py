"""Request bodies: written straight to disk, hashed on the way, removed when the request ends."""

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
from archiver.store.capacity import check_disk, explain_full_disk

_PIECE_BYTES = 1 << 20


@asynccontextmanager
async def receive_body(request: Request, settings: Settings) -> AsyncIterator[tuple[Path, bytes, int]]:
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
            raise HTTPException(400, "the connection closed before the whole body arrived: send the request again") from None
        yield Path(file.name), digest.digest(), size


def _write(settings: Settings, file: IO[bytes], piece: bytes) -> None:
    """Checks the disk for every piece: the total size is not known in advance. Raises NoRoom."""
    check_disk(settings, len(piece))
    with explain_full_disk():
        file.write(piece)
        file.flush()


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces large enough to be worth a thread switch each."""
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) >= _PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
