"""Downloads: always served as an attachment, under a safe name, with ranges and an ETag."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from archiver.reading.messages import byte_range

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_SAFE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "message/rfc822", "application/zip"}
)
_CLOSED = "sandbox; default-src 'none'"


def attachment_name(name: str) -> str:
    """A Content-Disposition value: no file name can end the header or escape from a folder."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", name).replace("\\", "/").rpartition("/")[2].strip(" .")[:200] or "download"
    name = name.encode("utf-8", "replace").decode()
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def not_modified(request: Request, etag: str) -> bool:
    etags = [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]
    return etag in etags or "*" in etags


def download(
    request: Request, pieces: Callable[[], Iterator[bytes]], *, size: int, sha256: bytes, name: str, content_type: str
) -> Response:
    """`pieces` is called only if there are bytes to send."""
    etag = f'"{sha256.hex()}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": attachment_name(name),
        "Content-Security-Policy": _CLOSED,
        "Content-Type": content_type if content_type in _SAFE_TYPES else "application/octet-stream",
    }
    if not_modified(request, etag):
        return Response(status_code=304, headers=headers)
    requested = _requested_range(request, etag, size)
    start, end = requested or (0, size)
    headers["Content-Length"] = str(end - start)
    if requested:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(byte_range(pieces(), start, end), 206 if requested else 200, headers)


def _requested_range(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """A single range. Several ranges, or a range of another version, are ignored (RFC 9110, 14.2)."""
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or match[0] == "bytes=-" or request.headers.get("If-Range", etag) != etag:
        return None
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
    else:
        start, end = max(0, size - int(match[2])), size
    if start >= end:
        if match[1] and match[2] and int(match[2]) < int(match[1]):
            return None
        raise HTTPException(416, "the requested range is outside the content", {"Content-Range": f"bytes */{size}"})
    return start, end
