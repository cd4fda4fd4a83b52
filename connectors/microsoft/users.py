"""The mailboxes of an organisation, and which of them are excluded, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.base import Context, Json, MailboxRef
from connectors.errors import Unavailable
from connectors.microsoft.graph import BATCH_REQUESTS, Graph, GraphRefused, NoMailbox, segment
from connectors.microsoft.groups import GROUP
from connectors.microsoft.settings import Microsoft365Settings
from connectors.selection import mailbox_rule

USERS = "User.Read.All"
_GROUPS = "GroupMember.Read.All"
_PURPOSE = "MailboxSettings.Read"
_FIELDS = "$select=id,displayName,mail,userPrincipalName,userType,accountEnabled,assignedPlans"
_PER_PAGE = 999
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

SHARED = "a shared mailbox (include_shared: no)"
DISABLED = "disabled"
GUEST = "a guest"
NO_MAILBOX = "no mailbox"


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    id: str
    address: str
    name: str | None
    left_out: str | None
    """Why the user has no mailbox to archive, as far as the directory shows."""

    def ref(self) -> MailboxRef:
        return MailboxRef(self.address, self.name, self.id)


def read_person(found: Mapping[str, Json]) -> DirectoryUser | None:
    key, address = found.get("id"), str(found.get("mail") or "")
    if not isinstance(key, str) or not key:
        return None
    name = str(found["displayName"]) if found.get("displayName") else None
    reason = None
    if str(found.get("userType") or "Member").lower() == "guest":
        reason = GUEST
    elif not address:
        reason = NO_MAILBOX
    elif found.get("accountEnabled") is False:
        reason = DISABLED
    elif not _has_exchange(found.get("assignedPlans")):
        reason = NO_MAILBOX
    return DirectoryUser(key, (address or str(found.get("userPrincipalName") or key)).lower(), name, reason)


def _has_exchange(plans: Json) -> bool:
    """A user without an Exchange licence has no mailbox. Shared mailboxes have no licence either; `_shared` finds them."""
    if not isinstance(plans, list):
        return True
    return any(
        isinstance(plan, dict) and plan.get("service") == "exchange" and plan.get("capabilityStatus") in ("Enabled", "Warning")
        for plan in plans
    )


@dataclass(slots=True)
class People:
    graph: Graph
    settings: Microsoft365Settings
    context: Context

    def mailboxes(self) -> Iterator[MailboxRef]:
        """All selected mailboxes. The others are reported to the context, with the reason."""
        inside, outside = self.members(self.settings.groups_in), self.members(self.settings.groups_out)
        unclear: list[DirectoryUser] = []
        for person in self._all():
            rule = mailbox_rule(self.settings, person.address) or self._group_rule(person, inside, outside)
            if rule:
                self.context.leave_out(person.address, rule)
            elif person.left_out in (DISABLED, NO_MAILBOX) and "@" in person.address and self.settings.include_shared:
                unclear.append(person)
            elif person.left_out:
                self.context.leave_out(person.address, person.left_out)
            else:
                yield from self._with_archive(person)
            if len(unclear) == BATCH_REQUESTS:
                yield from self._shared(unclear)
                unclear = []
        yield from self._shared(unclear)
        if self.settings.include_groups:
            yield from self.groups()

    def groups(self) -> Iterator[MailboxRef]:
        """The Microsoft 365 groups, which have a mailbox. The others are only lists of members."""
        path = f"/groups?$filter=groupTypes/any(c:c%20eq%20'Unified')&$select=id,displayName,mail&$top={_PER_PAGE}"
        try:
            for found in self.graph.pages(path, _GROUPS):
                address = str(found.get("mail") or "").lower()
                if not address or not found.get("id"):
                    continue
                if rule := mailbox_rule(self.settings, address):
                    self.context.leave_out(address, rule)
                else:
                    yield MailboxRef(address, str(found.get("displayName") or "") or None, f"{GROUP}{found['id']}")
        except GraphRefused as refused:
            raise Unavailable(f"the groups can't be listed: {refused}") from refused

    def first(self, limit: int) -> list[DirectoryUser]:
        """Some users with a mailbox, for a check."""
        found = self.graph.get(f"/users?{_FIELDS}&$top={_PER_PAGE}", USERS).get("value") or ()
        people = [person for one in found if (person := read_person(one)) and person.left_out is None]
        return [person for person in people if mailbox_rule(self.settings, person.address) is None][:limit]

    def members(self, groups: Sequence[str]) -> set[str] | None:
        """The ids of all members of these groups, including nested ones. None if no groups are given."""
        if not groups:
            return None
        found: set[str] = set()
        for group in groups:
            path = (
                f"/groups/{segment(self._group_id(group))}/transitiveMembers/microsoft.graph.user?$select=id&$top={_PER_PAGE}"
            )
            try:
                found |= {str(member["id"]) for member in self.graph.pages(path, _GROUPS) if member.get("id")}
            except GraphRefused as refused:
                raise Unavailable(f"the group {group} can't be read: {refused}") from refused
        return found

    def _all(self) -> Iterator[DirectoryUser]:
        try:
            for found in self.graph.pages(f"/users?{_FIELDS}&$top={_PER_PAGE}", USERS):
                person = read_person(found)
                if person:
                    yield person
        except GraphRefused as refused:
            raise Unavailable(f"the users can't be listed: {refused}") from refused

    def _group_id(self, group: str) -> str:
        if _ID.fullmatch(group):
            return group
        name = segment(group.replace("'", "''"))
        path = f"/groups?$filter=mail%20eq%20'{name}'%20or%20displayName%20eq%20'{name}'&$select=id"
        try:
            found = [str(one["id"]) for one in self.graph.pages(path, _GROUPS) if one.get("id")]
        except GraphRefused as refused:
            raise Unavailable(f"the group {group} can't be looked up: {refused}") from refused
        if len(found) != 1:
            raise Unavailable(f"there {'is no group' if not found else 'are several groups'} named {group}")
        return found[0]

    def _group_rule(self, person: DirectoryUser, inside: set[str] | None, outside: set[str] | None) -> str | None:
        if outside is not None and person.id in outside:
            return f"groups_out: {', '.join(self.settings.groups_out)}"
        if inside is not None and person.id not in inside:
            return f"groups_in: {', '.join(self.settings.groups_in)}"
        return None

    def _shared(self, people: Sequence[DirectoryUser]) -> Iterator[MailboxRef]:
        """The users whose mailbox is shared: neither the state of an account nor its licence shows that."""
        if not people:
            return
        paths = [f"/users/{segment(person.id)}/mailboxSettings/userPurpose" for person in people]
        for person, path, answer in zip(people, paths, self.graph.batch(paths, _PURPOSE), strict=True):
            purpose = answer.body.get("value")
            if answer.status not in (200, 404):
                try:
                    purpose = self.graph.get(path, _PURPOSE).get("value")
                except NoMailbox:
                    purpose = None
                except GraphRefused as refused:
                    raise Unavailable(f"the mailbox of {person.address} can't be looked up: {refused}") from refused
            if purpose == "shared":
                yield from self._with_archive(person)
            else:
                self.context.leave_out(person.address, person.left_out or NO_MAILBOX)

    def _with_archive(self, person: DirectoryUser) -> Iterator[MailboxRef]:
        yield person.ref()
        if not self.settings.include_archives:
            return
        try:
            found = self.graph.get(f"/users/{segment(person.id)}/settings/exchange", _PURPOSE, version="beta")
        except GraphRefused as refused:
            if refused.status != 404:
                raise Unavailable(f"the archive of {person.address} can't be looked up: {refused}") from refused
            return
        archive = found.get("inPlaceArchiveMailboxId")
        if isinstance(archive, str) and archive:
            local, _, domain = person.address.partition("@")
            yield MailboxRef(f"{local}+archive@{domain}", f"{person.name or person.address} (archive)", archive)
