"""Reads request bodies with documents: decompressed, checked, and parsed as JSON, NDJSON or CSV."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator
from typing import Any

import orjson

from archiver.search_server.errors import ApiError

BODY_LIMIT = 100 * 1024 * 1024
_FORMATS = {"application/json": "json", "application/x-ndjson": "ndjson", "text/csv": "csv"}
_ACCEPTED = "`application/json`, `application/x-ndjson`, `text/csv`"
_CHUNK = 1 << 20


def too_large(limit: int) -> ApiError:
    return ApiError(
        "payload_too_large", f"The provided payload reached the limit. The maximum accepted payload size is {limit} bytes."
    )


def unpack(body: bytes, encoding: str, limit: int = BODY_LIMIT) -> bytes:
    """Decodes the content encoding, up to the limit."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            return _inflate(body, encoding, limit)
        if encoding == "zstd":
            return _unzstd(body, limit)
    except (zlib.error, EOFError, ValueError) as error:
        raise ApiError("malformed_payload", f"The payload can't be unpacked as {encoding}: {error}") from error
    raise ApiError("unsupported_media_type", f"The content encoding `{encoding}` is not supported; use gzip, deflate or zstd.")


def _inflate(body: bytes, encoding: str, limit: int) -> bytes:
    inflater = zlib.decompressobj(zlib.MAX_WBITS | (16 if "gzip" in encoding else 0))
    found = inflater.decompress(body, limit + 1)
    if len(found) > limit:
        raise too_large(limit)
    if not inflater.eof:
        raise EOFError("it ends too early")
    return found


def _unzstd(body: bytes, limit: int) -> bytes:
    import zstandard

    found = io.BytesIO()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            while chunk := reader.read(_CHUNK):
                found.write(chunk)
                if found.tell() > limit:
                    raise too_large(limit)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return found.getvalue()


def format_of(content_type: str | None) -> str:
    if not content_type:
        raise ApiError(
            "missing_content_type",
            f"A Content-Type header is missing. Accepted values for the Content-Type header are: {_ACCEPTED}",
        )
    kind = _FORMATS.get(content_type.split(";")[0].strip().lower())
    if kind is None:
        raise ApiError(
            "invalid_content_type",
            f"The Content-Type `{content_type}` is invalid. Accepted values for the Content-Type header are: {_ACCEPTED}",
        )
    return kind


def read_documents(body: bytes, kind: str, delimiter: str = ",") -> list[dict[str, Any]]:
    """All documents of a body. Raises ApiError if it is empty or malformed."""
    if not body.strip():
        raise ApiError("missing_payload", f"A {kind} payload is missing.")
    try:
        documents = list(_READERS[kind](body, delimiter))
    except (orjson.JSONDecodeError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise ApiError("malformed_payload", f"The `{kind}` payload provided is malformed. `{error}`.") from error
    for document in documents:
        if not isinstance(document, dict):
            raise ApiError(
                "malformed_payload",
                f"The `{kind}` payload provided is malformed. `a document must be an object, not {document!r:.80}`.",
            )
    return documents


def _read_json(body: bytes, delimiter: str) -> list[Any]:
    value = orjson.loads(body)
    return value if isinstance(value, list) else [value]


def _read_ndjson(body: bytes, delimiter: str) -> Iterator[Any]:
    for line in body.splitlines():
        if line.strip():
            yield orjson.loads(line)


def _read_csv(body: bytes, delimiter: str) -> Iterator[dict[str, Any]]:
    rows = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), delimiter=delimiter)
    header = next(rows)
    columns = [_column(name) for name in header]
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(columns):
            raise ValueError(f"CSV error: line {number} has {len(row)} fields, but the header has {len(columns)}")
        yield {name: _csv_value(kind, value, number) for (name, kind), value in zip(columns, row, strict=True)}


def _column(name: str) -> tuple[str, str]:
    base, _, kind = name.rpartition(":")
    return (base, kind) if base and kind in ("number", "boolean", "string") else (name, "string")


def _csv_value(kind: str, value: str, line: int) -> Any:
    if not value:
        return None
    if kind == "number":
        number = float(value)
        return int(number) if number.is_integer() and "." not in value and "e" not in value.lower() else number
    if kind == "boolean":
        if value not in ("true", "false"):
            raise ValueError(f"Error parsing boolean {value!r} at line {line}")
        return value == "true"
    return value


_READERS = {"json": _read_json, "ndjson": _read_ndjson, "csv": _read_csv}
