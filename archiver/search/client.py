"""The Meilisearch client: for a real Meilisearch and for the embedded server alike."""

from __future__ import annotations

import meilisearch
from meilisearch.errors import MeilisearchError

from archiver.config import Settings
from archiver.errors import ConfigError, NotReady


def make_client(settings: Settings, timeout_seconds: int = 30) -> meilisearch.Client:
    if settings.meili_host is None or settings.meili_master_key is None:
        raise ConfigError(
            "MEILI_HOST and MEILI_MASTER_KEY are not set; `archiver up` sets them to those of the embedded server"
        )
    host, key = settings.meili_host.get_secret_value(), settings.meili_master_key.get_secret_value()
    return meilisearch.Client(host, key, timeout=timeout_seconds)


def search_version(settings: Settings) -> str:
    """Asks for the version, which needs the key too. Raises NotReady when there is no good answer."""
    try:
        return str(make_client(settings, timeout_seconds=3).get_version()["pkgVersion"])
    except (MeilisearchError, KeyError) as error:
        raise NotReady(f"search does not answer: {str(error).splitlines()[0]}") from error
