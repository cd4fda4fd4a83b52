"""Sources over API and page: no file of the server is read, and no stored secret is sent to another server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from archiver.config import load_settings
from archiver.sources.kinds import kinds, server_paths
from tests.integration.http.conftest import Company, Served
from tests.support.dovecot import PASSWORD, Dovecot

PATHS = [(kind.name, name) for kind in kinds() for name in sorted(server_paths(kind))]


class Stranger:
    """A server that somebody else runs: takes connections, and whatever is said on them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.heard = b""
        self.calls = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            with line:
                line.sendall(b"* OK ready\r\n")
                while said := line.recv(4096):
                    self.heard += said
                    line.sendall(b"a OK\r\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with closing(Stranger()) as server:
        yield server


def given(kind: str, name: str, path: Path) -> Any:
    if name == "trouble":
        return {"hold_path": str(path)}
    return {"*": {"hold_path": str(path)}} if name == "trouble_in" else str(path)


@pytest.mark.parametrize(("kind", "name"), PATHS)
def test_no_setting_names_a_file_of_the_server(
    company: Company, stranger: Stranger, tmp_path: Path, kind: str, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("planted-user\n")
    settings = {"host": "127.0.0.1", "port": stranger.port, "tls": "none"} if kind == "imap" else {}
    settings[name] = given(kind, name, secret)
    with company.client("admin") as admin:
        source = {"kind": kind, "name": f"{kind} {name}", "settings": settings, "secrets": {"password": "x"}}
        added = admin.post("/sources", json=source)
        changed = admin.patch(f"/sources/{company.source}", json={"settings": {name: settings[name]}})
        form = {"name": "x", "csrf": admin.headers["X-CSRF-Token"]}
        form |= {f"setting.{key}": str(value) for key, value in settings.items()}
        page = admin.post(f"{company.url}/sources/add/{kind}", data=form)
        shown = admin.get(f"{company.url}/sources/add/{kind}")
        schema = next(one for one in admin.get("/source-kinds").json()["items"] if one["kind"] == kind)["settings"]
    assert (added.status_code, added.json()["code"]) == (400, "bad_request")
    assert changed.status_code == 400
    assert page.status_code in ((303,) if name.startswith("trouble") else (404, 422)), "a form has no nested settings"
    assert f'name="setting.{name}"' not in shown.text
    assert name not in schema["properties"]
    assert stranger.calls == 0
    assert company.value("SELECT count(*) FROM ingestion_sources WHERE settings ? :n", n=name) == 0
    company.act("DELETE FROM ingestion_sources WHERE name = 'x'")


def test_certificates_and_lists_of_users_are_given_as_text(company: Company, dovecot: Dovecot) -> None:
    certificate = Path(dovecot.settings("x")["ca_file"]).read_text() if "ca_file" in dovecot.settings("x") else ""
    settings = {**dovecot.settings("x"), "users_list": "ann,ann@example.org,Ann\nben"}
    settings = {name: value for name, value in settings.items() if name not in ("user", "ca_file", "users_file")}
    settings |= {"ca": certificate} if certificate else {}
    with company.client("admin") as admin:
        added = admin.post(
            "/sources", json={"kind": "imap", "name": "by text", "settings": settings, "secrets": {"password": PASSWORD}}
        )
        assert added.status_code == 201, added.text
        form = admin.get(f"{company.url}/sources/{added.json()['id']}/edit").text
        assert "ann,ann@example.org,Ann" in form
        admin.delete(f"/sources/{added.json()['id']}")


def test_a_stored_password_goes_to_the_server_that_it_was_given_for(
    company: Company, dovecot: Dovecot, stranger: Stranger
) -> None:
    settings = {**dovecot.settings("moved"), "tls": "none", "port": dovecot.port}
    settings = {name: value for name, value in settings.items() if name != "ca_file"}
    with company.client("admin") as admin:
        source = {"kind": "imap", "name": "moving", "settings": settings, "secrets": {"password": PASSWORD}}
        added = admin.post("/sources", json=source)
        assert added.status_code == 201, added.text
        path = f"/sources/{added.json()['id']}"
        refused = admin.patch(path, json={"settings": {"port": stranger.port}})
        assert (refused.status_code, refused.json()["code"]) == (400, "secrets_needed")
        assert "password" in refused.json()["detail"]
        form = {f"setting.{name}": str(value) for name, value in settings.items()} | {"csrf": admin.headers["X-CSRF-Token"]}
        page = admin.post(f"{company.url}{path}/edit", data={**form, "setting.port": str(stranger.port)})
        assert page.status_code == 422
        assert stranger.calls == 0
        tried = admin.patch(path, json={"settings": {"port": stranger.port}, "secrets": {"password": "another"}})
        assert tried.status_code == 422, "it is no IMAP server, and was asked with the new password alone"
        assert b"another" in stranger.heard or stranger.calls > 0
        assert PASSWORD.encode() not in stranger.heard
        assert admin.patch(path, json={"settings": {"folders_out": ["Junk"]}}).status_code == 200, "it did not move"
        admin.delete(path)


def test_samples_are_offered_by_the_demo_alone(company: Company, variables: dict[str, str]) -> None:
    settings = load_settings({**variables, "SAMPLE_SOURCES": ""}, Path("none"))
    with company.client("admin") as admin, Served(settings) as served:
        api = f"{served.url}/api/v1"
        assert "fake" not in [one["kind"] for one in admin.get(f"{api}/source-kinds").json()["items"]]
        assert admin.post(f"{api}/sources", json={"kind": "fake", "name": "made up"}).status_code == 400
        assert admin.get(f"{served.url}/sources/add/fake").status_code == 404
        assert "/sources/add/fake" not in admin.get(f"{served.url}/sources").text


def test_only_servers_on_the_list(company: Company, variables: dict[str, str], stranger: Stranger) -> None:
    settings = load_settings({**variables, "SOURCE_HOSTS": "imap.example.org,*.example.net"}, Path("none"))
    source = {"host": "127.0.0.1", "port": stranger.port, "tls": "none", "user": "x"}
    with company.client("admin") as admin, Served(settings) as served:
        body = {"kind": "imap", "name": "x", "settings": source, "secrets": {"password": "x"}}
        refused = admin.post(f"{served.url}/api/v1/sources", json=body)
    assert refused.status_code == 400
    assert "SOURCE_HOSTS" in refused.json()["detail"]
    assert stranger.calls == 0
