"""Shared resources of the routes: opened on first use, closed when the process ends."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import redis

from archiver.access.login.oidc import Provider, provider_of
from archiver.access.login.totp import is_time_code
from archiver.adaptive_cache import Remembered
from archiver.config import Settings
from archiver.db.engine import Database, autocommit, make_engine
from archiver.errors import NotReady
from archiver.logs import get_logger
from archiver.maintenance.snapshot import save_config
from archiver.queue.connection import sync_client
from archiver.reading.content import Opener
from archiver.reading.previews import Drawings
from archiver.reading.remote_images import RemoteImages
from archiver.retention.expiry import find_expiring
from archiver.search.service import MailSearch, open_search
from archiver.secrets import Keyring, credentials_keyring
from archiver.sources.backpressure import Backpressure
from archiver.store.open import open_archive

if TYPE_CHECKING:
    from archiver.store.archive import Archive

_POOL_SIZE = 20
log = get_logger("api")


class ApiContext:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        """Set when the process shuts down: ends streams that would never end by themselves."""
        self.count_cache: Remembered[Any] = Remembered()
        """Counts that are expensive in large archives, by subject."""
        self._opening = threading.Lock()
        self._archive: Archive | None = None
        self._opener: Opener | None = None

    @cached_property
    def engine(self) -> Database:
        if self.settings.database_url is None:
            raise NotReady("postgres is not running")
        return make_engine(self.settings.database_url.get_secret_value(), "web", pool_size=_POOL_SIZE, keep_plans=True)

    def reading(self) -> AbstractContextManager[Any]:
        """A connection for read-only statements."""
        return autocommit(self.engine)

    @cached_property
    def redis(self) -> redis.Redis:
        if self.settings.redis_url is None:
            raise NotReady("redis is not running")
        return sync_client(self.settings.redis_url.get_secret_value())

    @cached_property
    def keyring(self) -> Keyring:
        return credentials_keyring(self.settings)

    @cached_property
    def search(self) -> MailSearch:
        return open_search(self.settings, self.engine, find_expiring)

    @cached_property
    def backpressure(self) -> Backpressure:
        return Backpressure(self.settings)

    @cached_property
    def oidc(self) -> Provider:
        return provider_of(self.settings)

    @cached_property
    def drawings(self) -> Drawings:
        """A separate, limited process that renders the pages of files."""
        return Drawings()

    @property
    def opener(self) -> Opener:
        """Separate, limited processes that parse mail."""
        archive = self.archive
        with self._opening:
            if self._opener is None:
                self._opener = Opener(archive)
            return self._opener

    @cached_property
    def remote_images(self) -> RemoteImages:
        return RemoteImages(self.settings.archiver_data / "cache" / "remote-images", self.keyring)

    @property
    def archive(self) -> Archive:
        with self._opening:
            if self._archive is None:
                self._archive = open_archive(self.settings, self.engine)
            return self._archive

    @property
    def secure(self) -> bool:
        """Users reach this server over https, according to ARCHIVER_URL."""
        url = self.settings.archiver_url
        return url is not None and url.get_secret_value().startswith("https://")

    def note_used_code(self, code: str | None) -> None:
        """After a sign-in: a used recovery code must not become valid again after a rebuild."""
        if code and not is_time_code(code.strip().replace(" ", "")):
            self.save_config()

    def save_config(self) -> None:
        """After a change of sources, users or grants: stores a snapshot of them in the packs."""
        save_config(self.engine, self.archive)

    def close(self) -> None:
        self.stopping.set()
        if self._archive is not None:
            self._archive.close()
        if "drawings" in self.__dict__:
            self.drawings.close()
        if self._opener is not None:
            self._opener.close()
        if "remote_images" in self.__dict__:
            self.remote_images.close()
        if "redis" in self.__dict__:
            self.redis.close()
        if "engine" in self.__dict__:
            self.engine.dispose()
