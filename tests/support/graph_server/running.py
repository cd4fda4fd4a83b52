"""The server as a process of its own, with a certificate that was made for it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from tests.support.graph_server.entra import CLIENT_ID, CLIENT_SECRET, TENANT
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

_ROOT = Path(__file__).parents[3]


class GraphServer:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.ca_file = url, folder / "ca.pem"
        self.certificate = (folder / "app.pem").read_text()
        """The app's own, with its private key."""
        self._trust = ssl.create_default_context(cafile=self.ca_file)

    @property
    def settings(self) -> dict[str, Any]:
        """Of a source that reads it."""
        return {
            "client_id": CLIENT_ID,
            "tenant": TENANT,
            "authority": self.url,
            "graph": self.url,
            "ca_file": str(self.ca_file),
        }

    @property
    def secrets(self) -> dict[str, str]:
        return {"client_secret": CLIENT_SECRET}

    def control(self, **order: Any) -> Any:
        data = json.dumps(order).encode() if order else None
        with urllib.request.urlopen(f"{self.url}/_control", data, timeout=DEADLINE_SECONDS, context=self._trust) as answer:
            return json.loads(answer.read())

    def do(self, mailbox: str, method: str, *args: Any, **more: Any) -> Any:
        return self.control(mailbox=mailbox, do=method, args=args, more=more)["result"]

    def seen(self) -> dict[str, Any]:
        return dict(self.control())

    def calls(self) -> dict[str, int]:
        return dict(self.seen()["calls"])


@contextmanager
def graph_server(folder: Path, **plan: Any) -> Iterator[GraphServer]:
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    own, app = authority.issue_cert("127.0.0.1"), authority.issue_cert("app.contoso.example", key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    app.private_key_and_cert_chain_pem.write_to_path(folder / "app.pem")
    certificate = app.cert_chain_pems[0].bytes().decode()
    port, paths = free_port(), {"ssl_certificate": str(folder / "server.pem"), "ssl_key": str(folder / "server.pem")}
    plan_path = folder / "plan.json"
    plan_path.write_text(json.dumps({"port": port, "certificate": certificate, **paths, **plan}))
    command = [sys.executable, "-m", "tests.support.graph_server.server", str(plan_path)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log)
    try:
        _wait_for(port, process, folder / "server.log")
        yield GraphServer(f"https://127.0.0.1:{port}", folder)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    eventually(listens, what="a server")
