"""What the routes work with: opened when it is first needed, closed when the process ends."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import redis
import structlog

from archiver.config import Settings
from archiver.db import Database, autocommit, make_engine
from archiver.errors import NotReady
from archiver.queue.connection import sync_client
from archiver.secrets import Keyring, credentials_keyring
from archiver.services.drawings import Drawings
from archiver.services.message_content import Opener
from archiver.services.oidc import Provider, provider_of
from archiver.services.places import open_archive
from archiver.services.remembered import Remembered
from archiver.services.remote_images import RemoteImages
from archiver.services.search import MailSearch, open_search
from archiver.services.snapshot import save_config
from archiver.services.totp import is_by_time

if TYPE_CHECKING:
    from archiver.store.archive import Archive

_POOL_SIZE = 20
log = structlog.get_logger("api")


class ApiContext:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        """Set when the process is asked to stop: streams that would go on for ever end."""
        self.counted: Remembered[Any] = Remembered()
        """Figures of large archives, by what they are of."""
        self.exports_wanted = threading.Event()
        self._opening = threading.Lock()
        self._archive: Archive | None = None
        self._opener: Opener | None = None

    @cached_property
    def engine(self) -> Database:
        if self.settings.database_url is None:
            raise NotReady("postgres is not running")
        return make_engine(self.settings.database_url.get_secret_value(), "web", pool_size=_POOL_SIZE, keep_plans=True)

    def reading(self) -> AbstractContextManager[Any]:
        """A connection for statements that change nothing."""
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
        return open_search(self.settings, self.engine)

    @cached_property
    def oidc(self) -> Provider:
        return provider_of(self.settings)

    @cached_property
    def drawings(self) -> Drawings:
        """A process apart, with limits, in which pages of files are drawn."""
        return Drawings()

    @property
    def opener(self) -> Opener:
        """Processes apart, with limits, in which mail is read."""
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
        """People reach us by https, as far as we were told."""
        url = self.settings.archiver_url
        return url is not None and url.get_secret_value().startswith("https://")

    def note_code(self, code: str | None) -> None:
        """After a sign-in: a recovery code that was used up must not come back with a rebuild."""
        if code and not is_by_time(code.strip().replace(" ", "")):
            self.keep_config()

    def keep_config(self) -> None:
        """After a change of sources, users or grants: the packs know it, too."""
        save_config(self.engine, self.archive)

    def close(self) -> None:
        self.stopping.set()
        self.exports_wanted.set()
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
