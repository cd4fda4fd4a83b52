"""compose.yaml and the Dockerfile against the code: each command, variable and health check they name must exist."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command

from archiver import __version__
from archiver.cli.app import build
from archiver.cli.start.init import environment_text
from archiver.config import Settings, load_settings
from archiver.errors import ConfigError
from workers.__main__ import parser as worker_parser

ROOT = Path(__file__).parents[2]
OURS = {"web", "ingestion-worker", "indexing-worker", "journal", "migrate", "cli"}
SERVERS = {"postgres", "valkey", "meilisearch"}
OPTIONAL = {
    "caddy": "tls",
    "prometheus": "monitoring",
    "grafana": "monitoring",
    "cli": "cli",
    "journal": "journal",
    "bull-board": "queues",
}
"""Services that only their profile starts."""
PASSED_ON = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}
"""For the libraries, which read them by themselves."""
REQUIRED = {
    "POSTGRES_PASSWORD",
    "POSTGRES_APP_PASSWORD",
    "VALKEY_PASSWORD",
    "MEILI_MASTER_KEY",
    "STORAGE_ENCRYPTION_KEY",
    "ENCRYPTION_KEY",
}

DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m)$"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "services", "volumes", "networks"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "volumes": {"type": "object"},
        "networks": {"type": "object"},
        "services": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["image", "restart", "healthcheck", "volumes", "logging", "read_only", "cap_drop", "security_opt"],
                "additionalProperties": False,
                "properties": {
                    "image": {"type": "string", "pattern": r"^[a-z0-9./-]+:v?\d+\.\d+\.?\d*(-[a-z]+)?$"},
                    "build": {"const": "."},
                    "restart": {"enum": ["no", "unless-stopped"]},
                    "user": {"type": "string"},
                    "read_only": {"const": True},
                    "tmpfs": {"type": "array", "items": {"type": "string", "pattern": "^/"}},
                    "logging": {"const": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}}},
                    "profiles": {"type": "array", "items": {"enum": ["tls", "monitoring", "cli", "journal", "queues"]}},
                    "entrypoint": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    "command": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                    "ports": {
                        "type": "array",
                        "items": {
                            "type": "string",
                            "pattern": r"^(127\.0\.0\.1:|80:80$|443:443$|\$\{JOURNAL_PUBLISHED_PORT:-2525\}:2525$)",
                        },
                    },
                    "volumes": {
                        "type": "array",
                        "items": {
                            "type": "string",
                            "pattern": r"^((\./[a-z/]+|[a-z-]+|\$\{[A-Z_]+:-[a-z./]+\}):)?/[a-z_/]+(:ro)?$",
                        },
                    },
                    "shm_size": {"type": "string"},
                    "networks": {"type": "array", "items": {"enum": ["servers", "outside"]}, "minItems": 1},
                    "cap_drop": {"const": ["ALL"]},
                    "cap_add": {"type": "array", "items": {"type": "string"}},
                    "security_opt": {"const": ["no-new-privileges:true"]},
                    "stop_grace_period": DURATION,
                    "depends_on": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "required": ["condition"],
                            "properties": {"condition": {"enum": ["service_healthy", "service_completed_successfully"]}},
                        },
                    },
                    "healthcheck": {
                        "oneOf": [
                            {
                                "type": "object",
                                "required": ["disable"],
                                "additionalProperties": False,
                                "properties": {"disable": {}},
                            },
                            {
                                "type": "object",
                                "required": ["test", "interval", "timeout", "start_period"],
                                "additionalProperties": False,
                                "properties": {
                                    "test": {"type": "array", "minItems": 2, "items": {"type": "string"}},
                                    "interval": DURATION,
                                    "timeout": DURATION,
                                    "start_period": DURATION,
                                },
                            },
                        ]
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "compose.yaml").read_text()))


def test_the_file_has_the_right_form(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, SCHEMA)
    assert set(compose["services"]) == OURS | SERVERS | set(OPTIONAL)
    used = {name for service in compose["services"].values() for volume in service["volumes"] if (name := _volume(volume))}
    assert used == set(compose["volumes"])
    for name, service in compose["services"].items():
        needed = set(service.get("depends_on", {}))
        assert needed <= set(compose["services"])
        assert service.get("profiles") == ([OPTIONAL[name]] if name in OPTIONAL else None)
        if name not in OPTIONAL:
            assert not needed & set(OPTIONAL), "a service that always runs can't wait for one that may not"


def _volume(text: str) -> str | None:
    """The named volume of an entry; None for a folder of the host, and for a volume without a name."""
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    source = filled.partition(":")[0]
    return None if source.startswith((".", "/")) else source


def test_every_folder_of_the_host_is_part_of_the_repository_or_made_by_init(compose: dict[str, Any]) -> None:
    named = {
        re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
    }
    folders = {name for name in named if name.startswith("./")}
    assert {name for name in folders if not (ROOT / name).is_dir()} <= {"./import", "./backup"}


def test_nothing_but_volumes_can_be_written_to(compose: dict[str, Any]) -> None:
    for name in OURS:
        service = compose["services"][name]
        assert service["user"] == "${ARCHIVER_UID:-10001}:${ARCHIVER_GID:-10001}"
        places = {volume.removesuffix(":ro").rsplit(":", 1)[-1] for volume in service["volumes"]} | set(
            service.get("tmpfs", [])
        )
        assert {"/data", "/tmp"} <= places
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--gid 10001" in dockerfile
    assert "--uid 10001" in dockerfile


def test_what_reads_foreign_mail_reaches_the_servers_and_nothing_else(compose: dict[str, Any]) -> None:
    assert compose["networks"] == {"servers": {"internal": True}, "outside": {}}
    for name, service in compose["services"].items():
        assert ("servers" in service["networks"]) == (name != "caddy")
        assert ("outside" in service["networks"]) == (
            name in {"web", "ingestion-worker", "journal", "cli", "caddy", "grafana", "bull-board"}
        )
        assert service.get("cap_add") is None or name not in OURS


def test_only_commands_and_migrations_know_the_owner_of_the_tables(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        environment = service.get("environment", {})
        owns = {"DATABASE_OWNER_URL", "DATABASE_OWNER_PASSWORD"} & set(environment)
        assert bool(owns) == (name in {"migrate", "cli"}), name
        if name in OURS - {"migrate", "cli"}:
            assert "${POSTGRES_PASSWORD" not in str(environment)


def test_our_services_run_commands_that_exist(compose: dict[str, Any]) -> None:
    commands = set(get_command(build()).commands)  # type: ignore[attr-defined]
    for name in OURS:
        service = compose["services"][name]
        command: list[str] = [*service.get("entrypoint", []), *service["command"]]
        program, *arguments = command
        assert program == "archiver"
        assert arguments[0] in commands
        if arguments[0] == "worker":
            with contextlib.redirect_stderr(io.StringIO()):
                parsed = worker_parser().parse_args(arguments[1:])
            assert isinstance(parsed, argparse.Namespace)
            assert str(parsed.alive_file) in compose["services"][name]["healthcheck"]["test"][1]


def test_every_variable_is_one_that_the_program_reads(compose: dict[str, Any]) -> None:
    known = {name.upper() for name in Settings.model_fields}
    for name in OURS:
        assert set(compose["services"][name]["environment"]) <= known | PASSED_ON
    example = (ROOT / ".env.example").read_text()
    explained = set(re.findall(r"^#?([A-Z][A-Z0-9_]*)=", example, re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text())) <= explained


def test_every_setting_can_be_given_to_the_containers(compose: dict[str, Any]) -> None:
    """What is fixed inside the image or makes no sense there is named here, so that a new setting is not forgotten."""
    given = set(compose["services"]["cli"]["environment"]) - PASSED_ON
    fixed = {"ARCHIVER_DATA", "ARCHIVER_HOST", "ARCHIVER_PORT", "INDEXING_PROCESSES", "SAMPLE_SOURCES"}
    assert {name.upper() for name in Settings.model_fields} == given | fixed


def test_secrets_have_no_default_and_stop_the_start(compose: dict[str, Any]) -> None:
    text = (ROOT / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?set \1 in \.env\}", text))
    assert required == REQUIRED
    example = (ROOT / ".env.example").read_text()
    marked = re.findall(r"compose needs it.*\n(?:#? ?python3.*\n)?#(\w+)=(.*)", example)
    assert {name for name, _ in marked} == required
    assert {value for _, value in marked} == {""}


def test_the_environment_of_a_container_is_accepted(compose: dict[str, Any]) -> None:
    """With what `archiver init` writes and everything else left empty, as compose does it."""
    secrets = dict(line.split("=", 1) for line in environment_text(None, monitoring=False).splitlines()[1:])
    assert set(secrets) >= REQUIRED

    def fill(text: str) -> str:
        return re.sub(r"\$\{(\w+):[?-][^}]*\}", lambda match: secrets.get(match[1], ""), text)

    environment = {name: fill(value) for name, value in compose["services"]["web"]["environment"].items()}
    settings = load_settings(environment, Path("none"))
    assert settings.embedded == frozenset()
    with pytest.raises(ConfigError):
        load_settings({**environment, "MEILI_MASTER_KEY": ""}, Path("none"))


def test_health_checks_ask_for_routes_that_exist(compose: dict[str, Any]) -> None:
    from archiver.http.app import create_app

    routes = {getattr(route, "path", "") for route in create_app(load_settings({}, Path("none"))).routes}
    check = " ".join(compose["services"]["web"]["healthcheck"]["test"])
    asked = re.findall(r"127\.0\.0\.1:8080(/\w+)", check + (ROOT / "Dockerfile").read_text())
    assert len(asked) == 2
    assert set(asked) <= routes


def test_image_and_program_have_one_version(compose: dict[str, Any]) -> None:
    assert compose["services"]["web"]["image"] == f"archiver:{__version__}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "archiver.__version__"}


def test_the_dockerfile_copies_what_there_is_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY ") and "--from" not in line for part in shlex.split(line)[1:-1]]
    assert copied
    assert [part for part in copied if not (ROOT / part).exists()] == []
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == allowed
    assert "USER archiver" in lines
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert packages <= set(copied)


def test_each_version_of_meilisearch_has_a_folder_of_its_own(compose: dict[str, Any]) -> None:
    """It does not open the files of another version, and would not start."""
    service = compose["services"]["meilisearch"]
    version = service["image"].partition(":")[2]
    assert service["environment"]["MEILI_DB_PATH"] == f"/meili_data/{version}"
    assert service["volumes"] == ["meilisearch:/meili_data"]
