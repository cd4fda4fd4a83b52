"""Names of files as text: for keys, for folders, and for people. File names may be in any encoding."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from connectors.selection import FolderRole

SEPARATOR = "\u241f"
_FOLDER_CHARS = 500
_SUFFIX = re.compile(r"\.(gz|bz2|xz|zst|zip|tgz|tbz2|txz|tzst|tar|mbox|mbx|eml|emlx|pst|ost|msg|olm)$", re.IGNORECASE)
_APPLE_INNER = re.compile(r"Data|Messages|\d|[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", re.IGNORECASE)
_SHIFTED = re.compile(r"&([A-Za-z0-9+,]*)-")

ROLES = {
    **dict.fromkeys(
        ("trash", "deleted messages", "deleted items", "bin", "papierkorb", "corbeille", "papelera"), FolderRole.TRASH
    ),
    **dict.fromkeys(("spam", "junk", "junk e-mail", "junk email", "bulk mail", "courrier indésirable"), FolderRole.SPAM),
    **dict.fromkeys(("drafts", "draft", "entwürfe", "brouillons", "borradores"), FolderRole.DRAFTS),
}


def shown(name: str) -> str:
    """A file name as Postgres and JSON can hold it: bytes that are no UTF-8 as \\xNN."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text.replace("\0", "\\x00")


def key_of(path: str, sha256: str, number: int) -> str:
    """The n-th message with these bytes in that file."""
    return f"{path}{SEPARATOR}{sha256}{SEPARATOR}{number}"


def stem(name: str) -> str:
    """`Inbox.mbox.gz` as `Inbox`."""
    while (bare := _SUFFIX.sub("", name)) != name and bare:
        name = bare
    return name


def folder_of(parts: Sequence[str], root: str) -> str:
    """The mail folder of a path: without what programs add to the name of a folder, or insert between folders."""
    if list(parts[:2]) == ["Takeout", "Mail"] and len(parts) > 2:
        parts = parts[2:]
    in_apple_box = any(part.endswith(".mbox") for part in parts[:-1])
    if in_apple_box:
        parts = [part for part in parts if part != "mbox" and not _APPLE_INNER.fullmatch(part)]
    plain = [part.removesuffix(".sbd") if part.endswith(".sbd") else stem(part) for part in parts]
    return ("/".join(part for part in plain if part) or stem(root) or "Imported")[:_FOLDER_CHARS]


def maildir_folder(parts: Sequence[str]) -> str:
    """Maildir++ writes `A/B` as `.A.B`, in the modified UTF-7 of IMAP (RFC 3501, 5.1.3); the top folder is the inbox."""
    names: list[str] = []
    for part in parts:
        names += part[1:].split(".") if part.startswith(".") else [part]
    return ("/".join(_decode_utf7(name) for name in names if name) or "INBOX")[:_FOLDER_CHARS]


def role_of(folder: str) -> FolderRole | None:
    return ROLES.get(folder.rpartition("/")[2].lower())


def _decode_utf7(name: str) -> str:
    if "&" not in name or not name.isascii():
        return name

    def decoded(match: re.Match[str]) -> str:
        if not match[1]:
            return "&"
        padded = match[1].replace(",", "/") + "=" * (-len(match[1]) % 4)
        return base64.b64decode(padded, validate=True).decode("utf-16-be")

    try:
        return _SHIFTED.sub(decoded, name)
    except (binascii.Error, UnicodeDecodeError):
        return name
