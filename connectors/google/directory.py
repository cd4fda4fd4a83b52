"""The users of a Workspace, from the Directory API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.base import MailboxRef
from connectors.errors import AuthFailed
from connectors.google.api import Api, GoogleRefused
from connectors.google.services import ApiRequest, directory
from connectors.google.settings import WorkspaceSettings
from connectors.selection import mailbox_rule

_FIELDS = "nextPageToken,users(id,primaryEmail,name/fullName,suspended,archived,isMailboxSetup,orgUnitPath)"


class WorkspaceDirectory:
    def __init__(self, api: Api, settings: WorkspaceSettings) -> None:
        self._api, self._settings = api, settings

    def mailboxes(self) -> Iterator[MailboxRef]:
        """All selected mailboxes, page by page."""
        wanted = self._members(self._settings.groups_in) if self._settings.groups_in else None
        unwanted = self._members(self._settings.groups_out)
        for user in self.users():
            address = str(user.get("primaryEmail", ""))
            if address and self.rule(user) is None and (wanted is None or address.lower() in wanted):
                if address.lower() in unwanted:
                    continue
                name = user.get("name") or {}
                yield MailboxRef(address, name.get("fullName") or None, user.get("id"))

    def rule(self, user: dict[str, Any]) -> str | None:
        """The rule that excludes this user, apart from groups."""
        settings = self._settings
        if user.get("suspended") and not settings.include_suspended and not user.get("archived"):
            return "include_suspended: no"
        if user.get("archived") and not settings.include_archived:
            return "include_archived: no"
        if user.get("isMailboxSetup") is False:
            return "no mailbox"
        unit = str(user.get("orgUnitPath", "/"))
        if any(_is_below(unit, path) for path in settings.units_out):
            return "units_out"
        if settings.units_in and not any(_is_below(unit, path) for path in settings.units_in):
            return "units_in"
        return mailbox_rule(settings, str(user.get("primaryEmail", "")))

    def users(self, page_size: int = 500, most_pages: int | None = None) -> Iterator[dict[str, Any]]:
        users = directory(self._api.base).users()
        first = users.list(customer=self._settings.customer, maxResults=page_size, orderBy="email", fields=_FIELDS)
        try:
            yield from self._pages(users, first, "users", most_pages)
        except GoogleRefused as refused:
            raise AuthFailed(
                f"{self._settings.admin} may not list the users: it must be an administrator with the privilege"
                f" `Users > Read` (Google says: {refused})"
            ) from refused

    def _members(self, groups: tuple[str, ...]) -> set[str]:
        found = set()
        for group in groups:
            members = directory(self._api.base).members()
            first = members.list(
                groupKey=group, includeDerivedMembership=True, maxResults=200, fields="nextPageToken,members(email)"
            )
            try:
                found |= {str(member.get("email", "")).lower() for member in self._pages(members, first, "members")}
            except GoogleRefused as refused:
                reason = "there is no such group" if refused.refusal.status == 404 else str(refused)
                raise AuthFailed(f"the members of the group {group} can't be listed: {reason}") from refused
        return found

    def _pages(self, collection: Any, first: ApiRequest, name: str, most_pages: int | None = None) -> Iterator[dict[str, Any]]:
        request: ApiRequest | None = first
        pages = 0
        while request is not None and (most_pages is None or pages < most_pages):
            page = self._api.ask(request, 1)
            self._api.context.progress()
            yield from page.get(name) or ()
            pages += 1
            request = collection.list_next(request, page)


def _is_below(unit: str, path: str) -> bool:
    unit, path = unit.lower().rstrip("/"), "/" + path.lower().strip("/")
    return path == "/" or unit == path or unit.startswith(f"{path}/")
