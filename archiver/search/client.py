"""The Meilisearch client, for a real Meilisearch and for the embedded server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meilisearch
import requests
from meilisearch._httprequests import HttpRequests
from meilisearch.errors import MeilisearchCommunicationError, MeilisearchError

from archiver.config import Settings
from archiver.errors import ConfigError, NotReady
from connectors.errors import first_line


def make_client(settings: Settings, timeout_seconds: int = 30) -> meilisearch.Client:
    if settings.meili_host is None or settings.meili_master_key is None:
        raise ConfigError("MEILI_HOST and MEILI_MASTER_KEY are not set; `archiver up` sets them to its embedded server")
    host, key = settings.meili_host.get_secret_value(), settings.meili_master_key.get_secret_value()
    client = meilisearch.Client(host, key, timeout=timeout_seconds)
    client.http = _KeptOpen(client)
    return client


class _KeptOpen(HttpRequests):
    """Reuses one connection for all requests of a client; the library itself opens a new one for each.

    Proxy and certificate settings are read from the environment once.
    """

    def __init__(self, client: meilisearch.Client) -> None:
        super().__init__(client.config)
        self._session = requests.Session()
        found = self._session.merge_environment_settings(client.config.url, {}, None, None, None)
        self._session.proxies, self._session.verify, self._session.cert = found["proxies"], found["verify"], found["cert"]
        self._session.trust_env = False

    def send_request(self, http_method: Callable[..., Any], path: str, *given: Any, **more: Any) -> Any:
        try:
            return super().send_request(getattr(self._session, http_method.__name__), path, *given, **more)
        except requests.RequestException as error:  # a truncated response, which the client does not handle
            raise MeilisearchCommunicationError(str(error)) from error


def search_version(settings: Settings) -> str:
    """Requests the version, which also checks the key. Raises NotReady if there is no valid response."""
    try:
        return str(make_client(settings, timeout_seconds=3).get_version()["pkgVersion"])
    except (MeilisearchError, KeyError) as error:
        raise NotReady(f"the search server does not answer: {first_line(error)}") from error
