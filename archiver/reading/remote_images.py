"""Remote images, fetched by the server at a reader's request: the sender learns our address, never the reader's.

They are embedded in the mail's HTML, so that the frame that shows it needs no network. Each is fetched once and cached,
encrypted.
"""

from __future__ import annotations

import base64
import hashlib
import html as entities
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from archiver.errors import TooMany, WrongKey
from archiver.logs import get_logger
from archiver.reading.image_fetching import Fetcher, image_type
from archiver.secrets import Keyring

_REMOTE = re.compile(r'(<img(?:\s+[\w-]+="[^"]*")*?\s+src=")(https?://[^"]*)(")', re.IGNORECASE)
_NOTHING = "data:,"
_MOST_IMAGES = 100
_MOST_BYTES = 20 << 20
_ALL_SECONDS = 15.0
_AT_ONCE = 8
_KEPT_SECONDS = 30 * 86_400
_KEPT_BYTES = 256 << 20
_PURPOSE = b"remote image"
log = get_logger(__name__)


class RemoteImages:
    def __init__(self, folder: Path, keyring: Keyring, fetcher: Fetcher | None = None) -> None:
        self._cache = _Cache(folder, keyring)
        self._fetcher = fetcher or Fetcher()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "remote-images")
        self._lock = threading.Lock()
        self._busy: set[object] = set()

    def embed(self, html: str, message: bytes, reader: object) -> str:
        """The HTML with its remote images embedded; those that can't be fetched are omitted. One such request per reader."""
        urls = list(dict.fromkeys(entities.unescape(match[2]) for match in _REMOTE.finditer(html)))[:_MOST_IMAGES]
        with self._alone(reader):
            images = self._images(urls, message)

        def replaced(match: re.Match[str]) -> str:
            return f"{match[1]}{images.get(entities.unescape(match[2]), _NOTHING)}{match[3]}"

        return _REMOTE.sub(replaced, html)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _images(self, urls: Sequence[str], message: bytes) -> dict[str, str]:
        """As data: URLs."""
        under_way = {url: self._threads.submit(self._image, url, message) for url in urls}
        wait(under_way.values(), _ALL_SECONDS)
        found: dict[str, str] = {}
        left = _MOST_BYTES
        for url, future in under_way.items():
            data = future.result() if future.done() else None
            future.cancel()
            if data and len(data) <= left:
                left -= len(data)
                found[url] = f"data:{image_type(data)};base64,{base64.b64encode(data).decode()}"
        return found

    def _image(self, url: str, message: bytes) -> bytes | None:
        key = hashlib.sha256(message + url.encode("utf-8", "replace")).hexdigest()
        kept = self._cache.read(key)
        if kept is not None:
            return kept
        data = self._fetcher.fetch(url)
        if data is not None:
            self._cache.write(key, data)
        return data

    @contextmanager
    def _alone(self, reader: object) -> Iterator[None]:
        with self._lock:
            if reader in self._busy:
                raise TooMany("the images of another message are still being loaded for you", 5)
            self._busy.add(reader)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(reader)


class _Cache:
    """Files named by message and URL, so that the cache does not reveal what readers of other messages have loaded."""

    def __init__(self, folder: Path, keyring: Keyring) -> None:
        self._folder, self._keyring = folder, keyring

    def read(self, key: str) -> bytes | None:
        path = self._folder / key
        try:
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                return None
            return self._keyring.unseal(path.read_bytes(), _PURPOSE)
        except (OSError, WrongKey):
            return None

    def write(self, key: str, data: bytes) -> None:
        """An image that can't be cached is fetched again."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._folder / f".{key}.{os.getpid()}.{threading.get_ident()}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._keyring.seal(data, _PURPOSE))
            draft.rename(self._folder / key)
            self._tidy()
        except OSError as error:
            log.warning("remote_image_not_kept", error=error.strerror)

    def _tidy(self) -> None:
        """Removes the oldest files when there are too many."""
        with suppress(FileNotFoundError):  # another process may be removing files too
            found = sorted(((one.stat().st_mtime, one.stat().st_size, one) for one in self._folder.iterdir()), reverse=True)
            total = 0
            for at, size, path in found:
                total += size
                if total > _KEPT_BYTES or time.time() - at > _KEPT_SECONDS:
                    path.unlink(missing_ok=True)
