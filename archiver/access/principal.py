"""The principal: who acts, and with which rights. Which mail they can see is decided in archiver.access.scope."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from archiver.db.states import UserRole
from archiver.errors import NotAllowed


class Right(StrEnum):
    READ = "read"
    SEARCH = "search"
    EXPORT = "export"
    RESTORE = "restore"
    """Putting mail back: administrators everywhere, users whom an administrator allows it into their own mailboxes."""
    INGEST = "ingest"
    MARK = "mark"
    """Tags and notes."""
    VIEW = "view"
    """The state of the system: sources, runs, queues, dead letters."""
    LABEL = "label"
    """Putting retention labels on messages that one can read."""
    ADMIN = "admin"
    """Changing sources, users and grants."""
    AUDIT = "audit"
    ACCOUNT = "account"
    """Changing one's own password, second factor, login sessions and API keys; never granted to a key."""


class KeyScope(StrEnum):
    """What an API key can be used for."""

    READ = "read"
    SEARCH = "search"
    EXPORT = "export"
    RESTORE = "restore"
    INGEST = "ingest"
    MARK = "mark"
    ADMIN = "admin"


ROLE_RIGHTS: dict[UserRole, frozenset[Right]] = {
    UserRole.ADMINISTRATOR: frozenset(Right),
    UserRole.AUDITOR: frozenset({Right.READ, Right.SEARCH, Right.EXPORT, Right.MARK, Right.VIEW, Right.AUDIT, Right.ACCOUNT}),
    UserRole.USER: frozenset({Right.READ, Right.SEARCH, Right.EXPORT, Right.INGEST, Right.MARK, Right.LABEL, Right.ACCOUNT}),
}
SCOPE_RIGHTS: dict[KeyScope, frozenset[Right]] = {
    KeyScope.READ: frozenset({Right.READ}),
    KeyScope.SEARCH: frozenset({Right.SEARCH}),
    KeyScope.EXPORT: frozenset({Right.EXPORT}),
    KeyScope.RESTORE: frozenset({Right.RESTORE}),
    KeyScope.INGEST: frozenset({Right.INGEST}),
    KeyScope.MARK: frozenset({Right.MARK, Right.LABEL}),
    KeyScope.ADMIN: frozenset({Right.ADMIN, Right.VIEW, Right.AUDIT}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    """As the audit log shows it."""
    role: UserRole
    rights: frozenset[Right]
    user_id: UUID | None = None
    may_read_all: bool = False
    session_id: UUID | None = None
    """The login session."""
    key_id: UUID | None = None
    client_address: str | None = None
    request_id: str | None = None

    def require(self, right: Right) -> None:
        if right not in self.rights:
            raise NotAllowed(f"this needs the right {right.value!r}")

    def at(self, client_address: str | None, request_id: str | None) -> Principal:
        return replace(self, client_address=client_address, request_id=request_id)


LOCAL_OPERATOR = Principal("local-operator", UserRole.ADMINISTRATOR, frozenset(Right), may_read_all=True)
"""The command line: access to the data folder includes the keys of the archive."""

NOBODY = Principal("nobody", UserRole.USER, frozenset())
"""A client that has not signed in."""


def rights_of(role: UserRole, scopes: list[str] | None = None, *, may_restore: bool = False) -> frozenset[Right]:
    """The rights of the role, and the right to restore if an administrator granted it; for an API key, only those that its
    scopes include."""
    allowed = ROLE_RIGHTS[role] | ({Right.RESTORE} if may_restore and role is not UserRole.AUDITOR else frozenset())
    if scopes is None:
        return allowed
    scoped: frozenset[Right] = frozenset().union(*(SCOPE_RIGHTS[KeyScope(scope)] for scope in scopes))
    return allowed & scoped
