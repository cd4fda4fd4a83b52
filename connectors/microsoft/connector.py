"""The Microsoft 365 connector."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from connectors.base import Batch, Context, Json, Known, MailboxRef, Quota
from connectors.errors import AuthFailed, Unavailable
from connectors.http import HttpClient
from connectors.microsoft.downloads import GraphDownloads
from connectors.microsoft.error_messages import missing
from connectors.microsoft.fetching import GraphMailboxFetch
from connectors.microsoft.folders import MAIL
from connectors.microsoft.graph import Graph, GraphRefused, NoMailbox, segment
from connectors.microsoft.groups import CONVERSATIONS, GROUP, GroupFetch
from connectors.microsoft.refetching import GraphRefetch
from connectors.microsoft.settings import (
    Microsoft365Secrets,
    Microsoft365Settings,
    OutlookSecrets,
    OutlookSettings,
)
from connectors.microsoft.target import GraphTarget
from connectors.microsoft.tokens import AppTokens, MicrosoftTokens, SignedInTokens
from connectors.microsoft.trash import GraphTrash
from connectors.microsoft.users import USERS, People
from connectors.spool import Spool

_TRIED_IN_A_CHECK = 5


class MicrosoftConnector:
    """A whole organisation, or the mailbox of the signed-in user."""

    def __init__(
        self, settings: Microsoft365Settings | OutlookSettings, tokens: MicrosoftTokens, http: HttpClient, context: Context
    ) -> None:
        self._settings, self._tokens, self._http, self._context = settings, tokens, http, context
        self._spool = Spool("microsoft")
        self._graph = Graph(settings.graph_url, tokens, http, context, settings.requests_at_once)
        self._downloads = GraphDownloads(self._graph, http, context, self._spool)
        self._people = People(self._graph, settings, context) if isinstance(settings, Microsoft365Settings) else None

    def check(self) -> None:
        """Gets a new token, then tries each permission; the error names the first missing one."""
        self._http.ensure_open()
        token = self._tokens.renew()
        try:
            self._check_access()
        except AuthFailed as refused:
            lacking = missing((USERS, MAIL), token) if self._people else []
            if len(lacking) < 2:
                raise
            raise AuthFailed(
                f"the app lacks the permissions {' and '.join(lacking)}: add them (API permissions, Microsoft Graph,"
                " Application permissions) and select “Grant admin consent”"
            ) from refused
        except GraphRefused as refused:
            raise Unavailable(f"Microsoft Graph rejected the request: {refused}") from refused

    def _check_access(self) -> None:
        if self._people is None:
            self._graph.get("/me?$select=id", "User.Read")
            self._graph.get("/me/mailFolders/inbox?$select=id", MAIL)
            return
        trouble: NoMailbox | None = None
        for person in self._people.first(_TRIED_IN_A_CHECK):
            try:
                self._graph.get(f"/users/{segment(person.id)}/mailFolders/inbox?$select=id", MAIL)
                trouble = None
                break
            except NoMailbox as error:  # no mailbox after all: try the next one
                trouble = error
        if trouble:
            raise trouble
        settings = self._people.settings
        self._people.members((*settings.groups_in, *settings.groups_out))
        group = next(self._people.groups(), None) if settings.include_groups else None
        if group is not None:
            self._graph.get(f"/groups/{segment((group.provider_id or '').removeprefix(GROUP))}/threads?$top=1", CONVERSATIONS)

    def mailboxes(self) -> Iterator[MailboxRef]:
        self._http.ensure_open()
        if self._people:
            yield from self._people.mailboxes()
            return
        yield self._me()

    def _me(self) -> MailboxRef:
        try:
            me = self._graph.get("/me?$select=id,displayName,mail,userPrincipalName", "User.Read")
        except GraphRefused as refused:
            raise Unavailable(f"Microsoft Graph rejected the request: {refused}") from refused
        address = str(me.get("mail") or me.get("userPrincipalName") or "").lower()
        if not address:
            raise Unavailable("the account that signed in has no address")
        return MailboxRef(address, me.get("displayName"), me.get("id"))

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        base = self._open(box)
        if group := self._group(box):
            yield from group.batches(state, known)
            return
        fetch = GraphMailboxFetch(self._graph, self._downloads, self._context, self._settings, base, box.address)
        yield from fetch.batches(state, known)

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        base = self._open(box)
        if group := self._group(box):
            yield from group.refetch(keys)
            return
        yield from GraphRefetch(self._graph, self._downloads, self._context, base, box.address).batches(keys)

    def _group(self, box: MailboxRef) -> GroupFetch | None:
        key = box.provider_id or ""
        if not key.startswith(GROUP):
            return None
        name, address = box.display_name or box.address, box.address.lower()
        return GroupFetch(self._graph, self._context, self._settings, key.removeprefix(GROUP), address, name, self._spool)

    def target(self, box: MailboxRef) -> GraphTarget:
        """The mailbox as a target of a restore. Closes this connector when it is closed."""
        if self._group(box):
            raise Unavailable(f"{box.address} is a group: mail can't be restored to it")
        return GraphTarget(self._graph, self._open(box), box.address, self.close)

    def trash(self, box: MailboxRef) -> GraphTrash:
        """The mailbox as one whose mail is moved to Deleted Items. Closes this connector when it is closed."""
        return GraphTrash(self._graph, self._open(box), self.close)

    def close(self) -> None:
        self._http.close()
        self._downloads.close()
        self._spool.close()

    def _open(self, box: MailboxRef) -> str:
        """The path of a mailbox; its rate limits apply from now on."""
        self._http.ensure_open()
        who = box.provider_id or box.address
        name = f"microsoft:{self._settings.client_id}:{who}".lower()
        self._graph.limit(Quota(name, float(self._settings.requests_per_minute)))
        if self._people is None and box.provider_id is None and self._me().address != box.address.lower():
            raise Unavailable(f"the signed-in account is not {box.address}")
        return f"/users/{segment(who)}" if self._people else "/me"


def open_organisation(settings: Microsoft365Settings, secrets: Microsoft365Secrets, context: Context) -> MicrosoftConnector:
    http = HttpClient(settings.ca_file, settings.ca)
    return MicrosoftConnector(settings, AppTokens(settings, secrets, http), http, context)


def open_outlook(settings: OutlookSettings, secrets: OutlookSecrets, context: Context) -> MicrosoftConnector:
    http = HttpClient(settings.ca_file, settings.ca)
    tokens = SignedInTokens(settings, secrets.refresh_token.get_secret_value(), http, context)
    return MicrosoftConnector(settings, tokens, http, context)
