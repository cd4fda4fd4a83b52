"""Where mail is restored to: the mailboxes it came from, one archived mailbox, or any IMAP account."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

from archiver.errors import UsageError

_MAX_FOLDER = 500


@dataclass(frozen=True, slots=True)
class RestoreDestination:
    """Exactly one of: the mailboxes that each message is in (`origins`), an archived mailbox, an IMAP account."""

    origins: bool = False
    mailbox_id: UUID | None = None
    imap: dict[str, Any] = field(default_factory=dict)
    """The settings of an imap source for one account."""
    below: str = ""
    """The folder, or Gmail label, that everything is put below."""

    def check(self) -> None:
        if self.origins + (self.mailbox_id is not None) + bool(self.imap) != 1:
            raise UsageError("choose one destination: the original mailboxes, an archived mailbox, or an IMAP account")
        if len(self.below) > _MAX_FOLDER or any(ord(char) < 32 for char in self.below):
            raise UsageError(f"the folder {self.below[:50]!r} is not a name that a server would accept")

    @property
    def account_name(self) -> str:
        """Of an IMAP account."""
        return f"{self.imap.get('user')} at {self.imap.get('host')}"


def parse_address(url: str) -> RestoreDestination:
    """`origins`, `mailbox:ID`, or `imaps://user@host:port/folder?setting=value` with the settings of an imap source."""
    if url == "origins":
        return RestoreDestination(origins=True)
    parts = urlsplit(url)
    if parts.scheme not in ("imap", "imaps") or not parts.hostname or not parts.username:
        raise UsageError(
            f"--to {parts.scheme}://…: expected imaps://USER@HOST[:PORT][/FOLDER] (or imap://, with STARTTLS), mailbox:ADDRESS"
            " or origins"
        )
    if parts.password is not None:
        raise UsageError("--to: passwords are not accepted as arguments; use --password-file, or enter it at the prompt")
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"--to {parts.hostname}: the port is not a number between 0 and 65535") from None
    settings: dict[str, Any] = {
        "host": parts.hostname,
        "user": unquote(parts.username),
        "tls": "implicit" if parts.scheme == "imaps" else "starttls",
        **dict(parse_qsl(parts.query)),
    }
    if port is not None:
        settings["port"] = port
    return RestoreDestination(imap=settings, below=unquote(parts.path).strip("/"))
