"""The names of the files in a package. Pure: from what is known about a message to a path that is safe on every system."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from archiver.exports.selection import FLAT, PDF
from connectors import exported

MBOX_FILE = "mail.mbox"
CSV_FILE = "messages.csv"
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_MAX_CHARS = 80
_MAILDIR_FLAGS = {"\\Draft": "D", "\\Flagged": "F", "\\Answered": "R", "\\Seen": "S", "\\Deleted": "T"}


def safe_name(name: str) -> str:
    """One component of a path: it can't leave its folder, and every file system accepts it."""
    name = name.encode("utf-8", "replace").decode()
    name = _UNSAFE.sub("_", name.replace("/", "_"))[:_MAX_CHARS].strip(" .") or "_"
    return f"_{name}" if _RESERVED.fullmatch(name) else name


def folder_path(entry: dict[str, Any]) -> str:
    """mailbox/folder/subfolder of a message, by its first copy."""
    first = entry["copies"][0] if entry["copies"] else {"mailbox": "unknown", "folder": ""}
    parts = [safe_name(first["mailbox"]), *(safe_name(part) for part in (first["folder"] or "").split("/") if part)]
    return "/".join(parts)


def file_name(entry: dict[str, Any], kind: str, layout: str) -> str:
    if kind == "mbox":
        return MBOX_FILE if layout == FLAT else f"{folder_path(entry)}.mbox"
    at = datetime.fromisoformat(entry["date"]).astimezone(UTC)
    if kind == "maildir":
        flags = maildir_flags(entry["copies"][0]["flags"] if entry["copies"] else [])
        name = f"cur/{exported.maildir_name(entry['id'], at, flags)}"
        return name if layout == FLAT else f"{folder_path(entry)}/{name}"
    place = folder_path(entry) if layout == "folders" else f"{at:%Y/%m}"
    return f"{place}/{entry['id']}.pdf" if kind == PDF else f"{place}/{exported.eml_name(entry['id'])}"


def maildir_flags(flags: list[str]) -> str:
    """In the order that Maildir wants (https://cr.yp.to/proto/maildir.html)."""
    return "".join(sorted(_MAILDIR_FLAGS[flag] for flag in flags if flag in _MAILDIR_FLAGS))


def numbered_name(name: str, used: set[str]) -> str:
    """A name that is not in `used` yet, and is now; compared as file systems without upper and lower case do."""
    stem, dot, suffix = name.rpartition(".")
    found, number = name, 1
    while found.lower() in used:
        number += 1
        found = f"{stem}~{number}{dot}{suffix}"
    used.add(found.lower())
    return found
