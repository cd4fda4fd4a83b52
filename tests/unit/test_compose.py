"""compose.yaml and the Dockerfile against the code: each command, variable and health check they name must exist."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command

from archiver import __version__
from archiver.cli.app import build
from archiver.config import Settings, load_settings
from archiver.errors import ConfigError
from workers.__main__ import parser as worker_parser

ROOT = Path(__file__).parents[2]
OURS = {"web", "ingestion-worker", "indexing-worker", "migrate"}
SERVERS = {"postgres", "valkey", "meilisearch"}
COMPOSE_VARIABLES = {"POSTGRES_PASSWORD", "VALKEY_PASSWORD"}

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
                "required": ["image", "restart", "healthcheck", "volumes"],
                "additionalProperties": False,
                "properties": {
                    "image": {"type": "string", "pattern": r"^[a-z0-9./-]+:v?\d+\.\d+\.?\d*(-[a-z]+)?$"},
                    "build": {"const": "."},
                    "restart": {"enum": ["no", "unless-stopped"]},
                    "command": {"type": "array", "items": {"type": "string"}, "minItems": 2},
                    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                    "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:"}},
                    "volumes": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+:/"}},
                    "shm_size": {"type": "string"},
                    "networks": {"type": "array", "items": {"enum": ["servers", "outside"]}, "minItems": 1},
                    "cap_drop": {"const": ["ALL"]},
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
    assert set(compose["services"]) == OURS | SERVERS
    used = {volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert used == set(compose["volumes"])
    for service in compose["services"].values():
        assert set(service.get("depends_on", {})) <= set(compose["services"])


def test_what_reads_foreign_mail_reaches_the_servers_and_nothing_else(compose: dict[str, Any]) -> None:
    assert compose["networks"] == {"servers": {"internal": True}, "outside": {}}
    for name, service in compose["services"].items():
        assert "servers" in service["networks"]
        assert ("outside" in service["networks"]) == (name in {"web", "ingestion-worker"})
        assert (service.get("cap_drop"), service.get("security_opt")) == (
            (["ALL"], ["no-new-privileges:true"]) if name in OURS else (None, None)
        )


def test_our_services_run_commands_that_exist(compose: dict[str, Any]) -> None:
    commands = set(get_command(build()).commands)  # type: ignore[attr-defined]
    for name in OURS:
        program, *arguments = compose["services"][name]["command"]
        if program == "archiver":
            assert arguments[0] in commands
        else:
            assert [program, *arguments[:2]] == ["python", "-m", "workers"]
            with contextlib.redirect_stderr(io.StringIO()):
                parsed = worker_parser().parse_args(arguments[2:])
            assert isinstance(parsed, argparse.Namespace)
            assert str(parsed.alive_file) in compose["services"][name]["healthcheck"]["test"][1]


def test_every_variable_is_one_that_the_program_reads(compose: dict[str, Any]) -> None:
    known = {name.upper() for name in Settings.model_fields}
    for name in OURS:
        assert set(compose["services"][name]["environment"]) <= known
    text = (ROOT / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)", text)) <= known | COMPOSE_VARIABLES


def test_every_setting_can_be_given_to_the_containers(compose: dict[str, Any]) -> None:
    """What is fixed inside the image or makes no sense there is named here, so that a new setting is not forgotten."""
    given = set(compose["services"]["web"]["environment"])
    fixed = {"ARCHIVER_DATA", "ARCHIVER_HOST", "ARCHIVER_PORT", "INDEXING_PROCESSES", "DATABASE_OWNER_URL", "SAMPLE_SOURCES"}
    assert {name.upper() for name in Settings.model_fields} == given | fixed


def test_secrets_have_no_default_and_stop_the_start(compose: dict[str, Any]) -> None:
    text = (ROOT / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?set \1 in \.env\}", text))
    assert required == {"POSTGRES_PASSWORD", "VALKEY_PASSWORD", "MEILI_MASTER_KEY", "STORAGE_ENCRYPTION_KEY", "ENCRYPTION_KEY"}
    example = (ROOT / ".env.example").read_text()
    marked = re.findall(r"compose needs it.*\n(?:#? ?python3.*\n)?#(\w+)=(.*)", example)
    assert {name for name, _ in marked} == required
    assert {value for _, value in marked} == {""}


def test_the_environment_of_a_container_is_accepted(compose: dict[str, Any]) -> None:
    """With the five secrets set and everything else left empty, as compose does it."""
    key = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    secrets = {"POSTGRES_PASSWORD": "p", "VALKEY_PASSWORD": "v", "MEILI_MASTER_KEY": "m" * 16}
    secrets |= {"STORAGE_ENCRYPTION_KEY": key, "ENCRYPTION_KEY": key}

    def fill(text: str) -> str:
        return re.sub(r"\$\{(\w+):[?-][^}]*\}", lambda match: secrets.get(match[1], ""), text)

    environment = {name: fill(value) for name, value in compose["services"]["web"]["environment"].items()}
    settings = load_settings(environment, Path("none"))
    assert settings.embedded == frozenset()
    with pytest.raises(ConfigError):
        load_settings({**environment, "MEILI_MASTER_KEY": ""}, Path("none"))


def test_health_checks_ask_for_routes_that_exist(compose: dict[str, Any]) -> None:
    from archiver.web.app import create_app

    routes = {getattr(route, "path", "") for route in create_app(load_settings({}, Path("none"))).routes}
    check = " ".join(compose["services"]["web"]["healthcheck"]["test"])
    asked = re.findall(r"127\.0\.0\.1:8080(/\w+)", check + (ROOT / "Dockerfile").read_text())
    assert len(asked) == 2
    assert set(asked) <= routes


def test_image_and_program_have_one_version(compose: dict[str, Any]) -> None:
    assert compose["services"]["web"]["image"] == f"archiver:{__version__}"
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


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
