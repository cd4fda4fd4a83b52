"""Lists the folders of a mailbox with their status: in one round trip if the server can, otherwise in two."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from imapclient.imap_utf7 import decode as decode_utf7
from imapclient.imap_utf7 import encode as encode_utf7

from connectors.imap.errors import CommandRefused
from connectors.imap.parse import Value, number, texts, values
from connectors.imap.providers import ImapProvider
from connectors.imap.wire import Response, Wire, quoted
from connectors.roles import roles
from connectors.selection import FolderRole

_STATUS_AT_ONCE = 100
_UNSELECTABLE = {"\\noselect", "\\nonexistent"}


@dataclass(frozen=True, slots=True)
class Status:
    messages: int
    uid_next: int | None
    uid_validity: int
    modseq: int | None = None


@dataclass(frozen=True, slots=True)
class ImapFolder:
    name: str
    """The name for users and for our keys: decoded, with `/` between levels whatever the server uses."""
    raw: bytes
    """The name as the server spells it."""
    attributes: frozenset[str] = frozenset()
    role: FolderRole | None = None
    status: Status | None = None
    """None if the server did not report it."""


def list_folders(wire: Wire) -> list[ImapFolder]:
    """All folders that can be opened, with their roles and status."""
    items = status_items(wire)
    can = wire.capabilities
    returns = [b"SPECIAL-USE"] if {"SPECIAL-USE", "LIST-EXTENDED"} <= can else []
    if "LIST-STATUS" in can:
        returns.append(b"STATUS (" + items + b")")
    command = b'LIST "" "*"' + (b" RETURN (" + b" ".join(returns) + b")" if returns else b"")
    try:
        responses = wire.run(command)
    except CommandRefused:
        if not returns:
            raise
        responses = wire.run(b'LIST "" "*"')
    known_roles = wire.provider.roles if wire.provider else {}
    folders = _named([folder for response in responses if (folder := _folder(response)) is not None], known_roles)
    statuses = dict(filter(None, map(_status, responses)))
    missing = [folder.raw for folder in folders if folder.raw not in statuses]
    statuses |= _ask_statuses(wire, missing, items)
    return [replace(folder, status=statuses.get(folder.raw)) for folder in folders]


def status_items(wire: Wire) -> bytes:
    has_modseq = bool({"CONDSTORE", "QRESYNC"} & wire.capabilities)
    return b"MESSAGES UIDNEXT UIDVALIDITY" + (b" HIGHESTMODSEQ" if has_modseq else b"")


def _ask_statuses(wire: Wire, names: list[bytes], items: bytes) -> dict[bytes, Status]:
    """Pipelines all STATUS commands: one round trip, with a limited number in flight, because neither side may block while it
    sends. A folder whose command is refused has no status."""
    found: dict[bytes, Status] = {}
    flying: deque[bytes] = deque()
    left = deque(names)
    while left or flying:
        while left and len(flying) < _STATUS_AT_ONCE:
            flying.append(wire.send(b"STATUS " + quoted(left.popleft()) + b" (" + items + b")"))
        try:
            found |= dict(filter(None, map(_status, wire.responses(flying.popleft()))))
        except CommandRefused:
            continue
    return found


def _folder(response: Response) -> ImapFolder | None:
    if response.text[:5].upper() != b"LIST ":
        return None
    match values(response.parts)[1:]:
        case [list(attributes), bytes() | None as delimiter, bytes(raw), *_]:
            flags = frozenset(item.decode("latin-1").lower() for item in texts(attributes))
            if flags & _UNSELECTABLE or not raw or any(byte in raw for byte in b"\r\n\0"):
                return None
            return ImapFolder(decode_name(raw, delimiter), raw, flags)
    return None


def _named(folders: list[ImapFolder], known_roles: Mapping[str, FolderRole]) -> list[ImapFolder]:
    """Each raw name once, with its role. Folders with the same decoded name are distinguished by their raw names."""
    once = {folder.raw: folder for folder in folders}
    taken: dict[str, ImapFolder] = {}
    for folder in once.values():
        name = folder.name if folder.name not in taken else f"{folder.name} ({folder.raw.decode('latin-1')})"
        taken[name] = replace(folder, name=name)
    found = roles({name: folder.attributes for name, folder in taken.items()}, known_roles)
    return [replace(folder, role=found.get(name)) for name, folder in taken.items()]


def _status(response: Response) -> tuple[bytes, Status] | None:
    if response.text[:7].upper() != b"STATUS ":
        return None
    match values(response.parts)[1:]:
        case [bytes(raw), list(items)]:
            counts = _pairs(items)
            messages, validity = counts.get(b"MESSAGES"), counts.get(b"UIDVALIDITY")
            if messages is not None and validity is not None:
                return raw, Status(messages, counts.get(b"UIDNEXT"), validity, counts.get(b"HIGHESTMODSEQ") or None)
    return None


def _pairs(items: Iterable[Value]) -> dict[bytes, int]:
    flat = list(items)
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {name.upper(): count for name, value in pairs if isinstance(name, bytes) and (count := number(value)) is not None}


def decode_name(raw: bytes, delimiter: bytes | None) -> str:
    """Decodes modified UTF-7 (RFC 3501, 5.1.3), or the UTF-8 that some servers send instead."""
    try:
        name = raw.decode() if max(raw) > 127 else decode_utf7(raw)
    except (UnicodeError, ValueError):
        name = raw.decode("latin-1")
    if delimiter and delimiter != b"/":
        name = name.replace(delimiter.decode("latin-1"), "/")
    return "INBOX" + name[5:] if name[:5].upper() == "INBOX" and name[5:6] in ("", "/") else name


def encode_name(name: str, delimiter: str | None) -> bytes:
    """The inverse, for a folder to be created."""
    return bytes(encode_utf7(name.replace("/", delimiter) if delimiter else name))


def provider_notes(provider: ImapProvider | None, folders: Sequence[ImapFolder]) -> tuple[str, ...]:
    """What the owner of a source should know about its provider."""
    if provider is None:
        return ()
    full = [folder.name for folder in folders if folder.status and 0 < provider.newest_only <= folder.status.messages]
    cut = f"{', '.join(full)}: older messages than the newest {provider.newest_only:,} are not shown over IMAP" if full else ""
    return tuple(filter(None, (f"{provider.name}: {provider.hint}" if provider.hint else "", cut)))
