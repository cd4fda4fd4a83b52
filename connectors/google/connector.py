"""The connectors of both Google kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping

from connectors.base import Batch, Context, Json, Known, MailboxRef, Quota
from connectors.errors import AuthFailed
from connectors.google.api import Api, GoogleRefused
from connectors.google.directory import WorkspaceDirectory
from connectors.google.downloads import GoogleDownloads
from connectors.google.fetching import GoogleMailboxFetch
from connectors.google.services import gmail_users
from connectors.google.settings import (
    GmailSecrets,
    GmailSettings,
    GoogleSettings,
    WorkspaceSecrets,
    WorkspaceSettings,
    read_key,
)
from connectors.google.target import GmailTarget
from connectors.google.tokens import (
    GMAIL_SCOPE,
    GMAIL_WRITE_SCOPE,
    MEMBERS_SCOPE,
    USERS_SCOPE,
    DelegatedTokens,
    GoogleTokens,
    RefreshedTokens,
)
from connectors.google.trash import GmailTrash
from connectors.http import HttpClient
from connectors.selection import mailbox_rule
from connectors.spool import Spool

_DIRECTORY_PER_MINUTE = 2400


class _GoogleConnector(ABC):
    """What both kinds have in common."""

    def __init__(self, settings: GoogleSettings, project: str, context: Context) -> None:
        self._google, self._project, self._context = settings, project, context
        self._http = HttpClient()
        self._spool = Spool("google")
        self._downloads: list[GoogleDownloads] = []

    @abstractmethod
    def _tokens(self, address: str, writes: bool = False) -> GoogleTokens: ...

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        self._http.ensure_open()
        yield from self._mailbox(box.address).batches(state, known)

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        self._http.ensure_open()
        yield from self._mailbox(box.address).refetch(keys)

    def target(self, address: str) -> GmailTarget:
        """The mailbox as a target of a restore, with tokens that may write. Closes this connector when it is closed."""
        self._http.ensure_open()
        return GmailTarget(self._gmail(address, writes=True), self._spool, self._google.units_per_message, self.close)

    def trash(self, address: str) -> GmailTrash:
        """The mailbox as one whose mail is moved to the trash. Closes this connector when it is closed."""
        self._http.ensure_open()
        return GmailTrash(self._gmail(address, writes=True), self.close)

    def close(self) -> None:
        self._http.close()
        for downloads in self._downloads:
            downloads.close()
        self._spool.close()

    def _mailbox(self, address: str) -> GoogleMailboxFetch:
        api = self._gmail(address)
        downloads = GoogleDownloads(api, self._spool, self._google.units_per_message, self._google.parallel)
        self._downloads.append(downloads)
        return GoogleMailboxFetch(address, api, self._google, downloads)

    def _gmail(self, address: str, writes: bool = False) -> Api:
        quotas = (
            Quota(f"google:{self._project}:{address.lower()}", self._google.units_per_user),
            Quota(f"google:{self._project}", self._google.units_per_project),
        )
        return Api(self._http, self._tokens(address, writes), self._context, self._google.gmail_url, "Gmail API", quotas)

    def _profile(self, address: str) -> str:
        """The address of a mailbox that can be read, as Gmail spells it."""
        try:
            api = self._gmail(address)
            return str(api.ask(gmail_users(api.base).getProfile(userId="me"), 1).get("emailAddress", ""))
        except GoogleRefused as refused:
            raise AuthFailed(f"Gmail denies access to {address}: {refused}") from refused


class WorkspaceConnector(_GoogleConnector):
    """All users of a Workspace, read by a service account on their behalf."""

    def __init__(self, settings: WorkspaceSettings, secrets: WorkspaceSecrets, context: Context) -> None:
        self._key = read_key(secrets.key.get_secret_value())
        self._settings = settings
        super().__init__(settings, self._key["project_id"], context)

    def check(self) -> None:
        """Step by step, so that the error names the first missing one."""
        directory = self._directory()
        box = next(directory.mailboxes(), None)
        self._profile(box.address if box else self._settings.admin)

    def mailboxes(self) -> Iterator[MailboxRef]:
        self._http.ensure_open()
        yield from self._directory().mailboxes()

    def _directory(self) -> WorkspaceDirectory:
        needs_groups = self._settings.groups_in or self._settings.groups_out
        scopes = (USERS_SCOPE, MEMBERS_SCOPE) if needs_groups else (USERS_SCOPE,)
        tokens = DelegatedTokens(self._key, self._settings.admin, scopes)
        quota = Quota(f"google-directory:{self._project}", _DIRECTORY_PER_MINUTE)
        api = Api(self._http, tokens, self._context, self._settings.directory_url, "Admin SDK API", (quota,))
        return WorkspaceDirectory(api, self._settings)

    def _tokens(self, address: str, writes: bool = False) -> GoogleTokens:
        return DelegatedTokens(self._key, address, (GMAIL_WRITE_SCOPE if writes else GMAIL_SCOPE,))


class GmailConnector(_GoogleConnector):
    """One account whose owner has signed in."""

    def __init__(self, settings: GmailSettings, secrets: GmailSecrets, context: Context) -> None:
        self._settings = settings
        self._own = RefreshedTokens(
            settings.token_url,
            settings.client_id,
            secrets.client_secret.get_secret_value(),
            secrets.refresh_token.get_secret_value(),
            context.save_credentials,
        )
        super().__init__(settings, settings.client_id.partition("-")[0], context)

    def check(self) -> None:
        self._http.ensure_open()
        answer = self._profile(self._settings.address)
        if answer.lower() != self._settings.address.lower():
            raise AuthFailed(f"the account that signed in is {answer}, not {self._settings.address}")

    def mailboxes(self) -> Iterator[MailboxRef]:
        """Detects a revoked sign-in, so that the source asks for a new one instead of failing each time."""
        self._http.ensure_open()
        self._own.get(self._http)
        if mailbox_rule(self._settings, self._settings.address) is None:
            yield MailboxRef(self._settings.address)

    def fetch(self, box: MailboxRef, state: Mapping[str, Json], known: Known) -> Iterator[Batch]:
        self._ensure_own(box)
        return super().fetch(box, state, known)

    def refetch(self, box: MailboxRef, keys: Collection[str]) -> Iterator[Batch]:
        self._ensure_own(box)
        return super().refetch(box, keys)

    def _ensure_own(self, box: MailboxRef) -> None:
        if box.address.lower() != self._settings.address.lower():
            raise AuthFailed(f"{box.address} is not the account of this source")

    def target(self, address: str) -> GmailTarget:
        self._ensure_own(MailboxRef(address))
        return super().target(address)

    def trash(self, address: str) -> GmailTrash:
        self._ensure_own(MailboxRef(address))
        return super().trash(address)

    def _tokens(self, address: str, writes: bool = False) -> GoogleTokens:
        return self._own
