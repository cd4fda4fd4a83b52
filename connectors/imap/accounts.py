"""The accounts of a source, and how to log in to each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from connectors.base import MailboxRef
from connectors.errors import AuthFailed, Unavailable
from connectors.imap.settings import ImapSecrets, ImapSettings


@dataclass(frozen=True, slots=True)
class Account:
    user: str
    address: str
    display_name: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def ref(self) -> MailboxRef:
        return MailboxRef(self.address, self.display_name)


def accounts(settings: ImapSettings, secrets: ImapSecrets) -> dict[str, Account]:
    """By lowercase address, in the given order, each once."""
    passwords = _passwords(secrets.passwords)
    found: dict[str, Account] = {}
    for user, address, name in _users(settings):
        account = Account(user, address or _address(settings, user), name or None, _password(secrets, passwords, user))
        found.setdefault(account.address.lower(), account)
    if not found:
        raise Unavailable("this source has no users")
    return found


def _users(settings: ImapSettings) -> Iterable[tuple[str, str, str]]:
    text = settings.users_list or _text(settings.users_file)
    if text is None:
        return [(user, "", "") for user in ((settings.user,) if settings.user else settings.users)]
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))]
    return [
        (row[0], row[1] if len(row) > 1 else "", row[2] if len(row) > 2 else "")
        for row in rows
        if row and row[0] and not row[0].startswith("#") and row[0].lower() != "user"
    ]


def _text(users_file: Path | None) -> str | None:
    try:
        return users_file.read_text(encoding="utf-8-sig") if users_file else None
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the list of users {users_file} can't be read: {_reason(error)}") from error


def _address(settings: ImapSettings, user: str) -> str:
    return user if "@" in user else f"{user}@{settings.domain or settings.host}"


def _passwords(given: SecretStr | None) -> Mapping[str, str]:
    if given is None:
        return {}
    rows = [row for row in csv.reader(io.StringIO(given.get_secret_value())) if row]
    if any(len(row) != 2 for row in rows):
        raise AuthFailed("the secret `passwords`: each line must be user,password")
    return {user.strip(): password for user, password in rows}


def _password(secrets: ImapSecrets, passwords: Mapping[str, str], user: str) -> str | None:
    if user in passwords:
        return passwords[user]
    return secrets.password.get_secret_value() if secrets.password else None


def _reason(error: Exception) -> str:
    return (error.strerror or "an error") if isinstance(error, OSError) else "it is not UTF-8"
