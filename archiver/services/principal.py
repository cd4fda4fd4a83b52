"""Who acts, and what that one may do at all. Which mail they may see is another question: archiver.services.access."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from archiver.errors import NotAllowed
from archiver.models.states import Role


class Right(StrEnum):
    READ = "read"
    SEARCH = "search"
    EXPORT = "export"
    INGEST = "ingest"
    VIEW = "view"
    """How the system stands: sources, runs, queues, dead letters."""
    ADMIN = "admin"
    """Changes of sources, users and grants."""
    AUDIT = "audit"
    ACCOUNT = "account"
    """One's own password, second factor, sessions and keys; never by a key."""


class Scope(StrEnum):
    """What an API key is made for."""

    READ = "read"
    SEARCH = "search"
    EXPORT = "export"
    INGEST = "ingest"
    ADMIN = "admin"


ROLE_RIGHTS: dict[Role, frozenset[Right]] = {
    Role.ADMINISTRATOR: frozenset(Right),
    Role.AUDITOR: frozenset({Right.READ, Right.SEARCH, Right.EXPORT, Right.VIEW, Right.AUDIT, Right.ACCOUNT}),
    Role.USER: frozenset({Right.READ, Right.SEARCH, Right.EXPORT, Right.INGEST, Right.ACCOUNT}),
}
SCOPE_RIGHTS: dict[Scope, frozenset[Right]] = {
    Scope.READ: frozenset({Right.READ}),
    Scope.SEARCH: frozenset({Right.SEARCH}),
    Scope.EXPORT: frozenset({Right.EXPORT}),
    Scope.INGEST: frozenset({Right.INGEST}),
    Scope.ADMIN: frozenset({Right.ADMIN, Right.VIEW, Right.AUDIT}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    """As the audit log shows it."""
    role: Role
    rights: frozenset[Right]
    user_id: UUID | None = None
    may_read_all: bool = False
    session_id: UUID | None = None
    key_id: UUID | None = None
    client_address: str | None = None
    request_id: str | None = None

    def require(self, right: Right) -> None:
        if right not in self.rights:
            raise NotAllowed(f"this needs the right {right.value!r}")

    def at(self, client_address: str | None, request_id: str | None) -> Principal:
        return replace(self, client_address=client_address, request_id=request_id)


LOCAL_OPERATOR = Principal("local-operator", Role.ADMINISTRATOR, frozenset(Right), may_read_all=True)
"""The command line: whoever may read the data folder has the keys of the archive."""

NOBODY = Principal("nobody", Role.USER, frozenset())
"""Before a sign-in."""


def rights_of(role: Role, scopes: list[str] | None = None) -> frozenset[Right]:
    """Those of the role; through a key, those of them that its scopes give."""
    allowed = ROLE_RIGHTS[role]
    if scopes is None:
        return allowed
    given: frozenset[Right] = frozenset().union(*(SCOPE_RIGHTS[Scope(scope)] for scope in scopes))
    return allowed & given
