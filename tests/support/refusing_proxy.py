"""A real HTTP proxy before the search server that refuses bodies with a certain text in them, as an engine may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from tests.support.waiting import DEADLINE_SECONDS

_REFUSAL = b'{"message": "The document is refused.", "code": "invalid_document", "type": "invalid_request", "link": ""}'


@contextmanager
def refusing(url: str, poison: bytes) -> Iterator[str]:
    """The address of the proxy."""

    class Proxy(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if poison in body:
                return self._answer(400, _REFUSAL)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")}
            found = requests.request(self.command, url + self.path, data=body, headers=headers, timeout=DEADLINE_SECONDS)
            return self._answer(found.status_code, found.content)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
