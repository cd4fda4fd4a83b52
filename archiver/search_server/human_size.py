"""Sizes in API responses: a number of bytes, or a readable text."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def human(size_bytes: int) -> str:
    """`1.36 MiB`; less than a KiB is counted in bytes."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in _UNITS:
        size /= 1024
        if size < 1024 or unit == _UNITS[-1]:
            break
    return f"{size:.2f} {unit}"
