"""Moves messages of a Gmail mailbox to its trash, where Gmail keeps them for 30 days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connectors.errors import AuthFailed, Unavailable
from connectors.google.api import Api, GoogleRefused
from connectors.google.services import gmail_users

_COST = 20.0


@dataclass(frozen=True, slots=True)
class GmailTrash:
    api: Api
    on_close: Callable[[], None]

    def move(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if self._move(key)}

    def close(self) -> None:
        self.on_close()

    def _move(self, key: str) -> bool:
        try:
            self.api.ask(gmail_users(self.api.base).messages().trash(userId="me", id=key), _COST)
        except GoogleRefused as refused:
            if refused.refusal.status == 404:
                return False
            if refused.refusal.status == 403:
                text = f"Gmail denies writing: {refused}. Deleting needs the scope gmail.modify (docs/sources/deleting.md)"
                raise AuthFailed(text) from refused
            raise Unavailable(f"Gmail refused to move a message to the trash: {refused}") from refused
        return True
