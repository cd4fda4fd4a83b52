"""Google's own client, from the descriptions of the APIs that it contains: nothing is asked of Google to build it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from connectors.extras import LazyModule

if TYPE_CHECKING:
    from googleapiclient import discovery
else:
    discovery = LazyModule("googleapiclient.discovery", "google")


class ApiRequest(Protocol):
    """A request that Google's client has prepared (googleapiclient.http.HttpRequest). Thread-safe until it is executed."""

    def execute(self, http: Any) -> Any: ...


@lru_cache(maxsize=16)
def gmail_users(url: str) -> Any:
    """`users` of the Gmail API at this URL. Shared by all threads: only its requests know a connection."""
    return _service("gmail", "v1", url).users()


@lru_cache(maxsize=16)
def directory(url: str) -> Any:
    """The Directory API of the Admin SDK."""
    return _service("admin", "directory_v1", url)


def _service(name: str, version: str, url: str) -> Any:
    options = {"api_endpoint": f"{url}/"}
    return discovery.build(name, version, http=_NoConnection(), client_options=options, cache_discovery=False)


class _NoConnection:
    """Requests are executed with the connection of a mailbox, never with that of the shared client."""

    def request(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("execute a request with a connection")
