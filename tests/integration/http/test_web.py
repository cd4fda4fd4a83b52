"""The web process's own routes, over the real parts and with some of them gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from archiver.config import Settings, load_settings
from archiver.http.app import create_app
from archiver.http.assets import static_path
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.valkey import EmbeddedValkey

NOWHERE = {
    "DATABASE_URL": "postgresql://archiver:hunter2@127.0.0.1:1/archiver",
    "REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
    "MEILI_HOST": "http://127.0.0.1:1",
    "MEILI_MASTER_KEY": "hunter2",
}


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataFolder(tmp_path_factory.mktemp("valkey") / "data")
    folder.prepare()
    server = EmbeddedValkey(folder)
    server.prepare()
    with server.running():
        yield server.url()


def client(settings: Settings, address: str = "127.0.0.1") -> TestClient:
    return TestClient(create_app(settings), "http://127.0.0.1", raise_server_exceptions=False, client=(address, 50000))


@pytest.mark.parametrize("path", ["/metrics", "/parts"])
def test_figures_are_for_this_machine_or_a_token(path: str) -> None:
    token = "a-token-of-enough-characters"
    settings = load_settings({**NOWHERE, "METRICS_TOKEN": token}, Path("none"))
    assert client(settings).get(path).status_code == 200
    assert client(settings, "::1").get(path).status_code == 200
    far = client(settings, "192.0.2.7")
    assert far.get(path).status_code == 401
    assert "postgres" not in far.get(path).text
    assert far.get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert far.get(path, headers={"Authorization": "Bearer something-else-entirely"}).status_code == 401
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        assert client(settings).get(path, headers={header: "127.0.0.1"}).status_code == 401, "a proxy on this machine"
    without = client(load_settings(NOWHERE, Path("none")), "192.0.2.7")
    assert without.get(path, headers={"Authorization": "Bearer "}).status_code == 401


def test_a_monitoring_system_in_another_container_asks_by_our_name_there() -> None:
    """A page of another site whose name means our address (DNS rebinding) has no token, and gets nothing."""
    token = "a-token-of-enough-characters"
    web = client(load_settings({**NOWHERE, "METRICS_TOKEN": token, "ARCHIVER_URL": "https://m.example"}, Path("none")))
    name = {"Host": "web:8080"}
    assert web.get("/metrics", headers=name).status_code == 421
    assert web.get("/metrics", headers={**name, "Authorization": "Bearer wrong"}).status_code == 421
    assert web.get("/metrics", headers={**name, "Authorization": f"Bearer {token}"}).status_code == 200
    assert web.get("/parts", headers={**name, "Authorization": f"Bearer {token}"}).status_code == 421


def test_a_process_without_any_part_lives_but_is_not_ready() -> None:
    web = client(load_settings(NOWHERE, Path("none")))
    assert web.get("/healthz").text == "ok\n"
    answer = web.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "parts": {"postgres": "does not answer", "redis": "does not answer", "search": "does not answer"},
    }
    for path in ("/readyz", "/parts", "/metrics"):
        assert "hunter2" not in web.get(path).text


def test_it_says_which_part_is_missing(database_url: str, redis_url: str) -> None:
    web = client(load_settings({**NOWHERE, "DATABASE_URL": database_url, "REDIS_URL": redis_url}, Path("none")))
    assert web.get("/readyz").json()["parts"] == {"postgres": "ok", "redis": "ok", "search": "does not answer"}
    page = web.get("/parts").text
    assert page.count(">not responding<") == 1
    assert "A component is not responding" in page
    figures = web.get("/metrics").text
    assert 'archiver_part_up{part="postgres"} 1.0' in figures
    assert 'archiver_part_up{part="search"} 0.0' in figures
    assert "archiver_index_lag_seconds 0.0" in figures
    assert 'archiver_http_requests_total{method="GET",route="/readyz",status="200"}' not in figures
    assert 'archiver_http_requests_total{method="GET",route="/readyz",status="503"} 1.0' in figures


def test_headers_that_protect_are_on_every_answer() -> None:
    web = client(load_settings(NOWHERE, Path("none")))
    for path in ("/healthz", "/parts", f"{static_path()}/archiver.css", "/no-such-page"):
        headers = web.get(path).headers
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert len(headers["X-Request-Id"]) == 16


def test_an_error_tells_the_client_nothing_but_an_id() -> None:
    app = create_app(load_settings(NOWHERE, Path("none")))

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("private detail")

    answer = TestClient(app, "http://127.0.0.1", raise_server_exceptions=False).get("/broken")
    assert answer.status_code == 500
    assert "private detail" not in answer.text
    assert answer.headers["X-Request-Id"] in answer.text
