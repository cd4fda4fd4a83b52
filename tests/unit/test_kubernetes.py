"""The manifests for Kubernetes: their form, and that what they name exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from archiver import __version__
from archiver.cli.app import COMMANDS
from archiver.config import load_settings
from workers.__main__ import parser

MANIFESTS = list(yaml.safe_load_all((Path(__file__).parents[2] / "deploy" / "kubernetes" / "archiver.yaml").read_text()))
PODS = [one for one in MANIFESTS if one["kind"] in ("Deployment", "Job")]
_LABELS = {"type": "object", "required": ["app.kubernetes.io/name"], "additionalProperties": {"type": "string"}}
_CONTAINER = {
    "type": "object",
    "required": ["name", "image", "command", "args", "envFrom", "securityContext", "resources", "volumeMounts"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"},
        "image": {"const": f"archiver:{__version__}"},
        "command": {"const": ["archiver"]},
        "args": {"type": "array", "items": {"type": "string"}},
        "ports": {"type": "array", "items": {"type": "object", "required": ["name", "containerPort"]}},
        "envFrom": {"type": "array", "items": {"type": "object", "maxProperties": 1, "minProperties": 1}},
        "readinessProbe": {"type": "object", "required": ["periodSeconds"]},
        "livenessProbe": {"type": "object", "required": ["periodSeconds"]},
        "securityContext": {
            "const": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        },
        "resources": {
            "type": "object",
            "required": ["requests", "limits"],
            "properties": {"limits": {"type": "object", "required": ["memory"]}},
        },
        "volumeMounts": {"type": "array", "items": {"type": "object", "required": ["name", "mountPath"]}},
    },
}
_POD = {
    "type": "object",
    "required": ["automountServiceAccountToken", "securityContext", "containers", "volumes"],
    "additionalProperties": False,
    "properties": {
        "automountServiceAccountToken": {"const": False},
        "restartPolicy": {"enum": ["OnFailure", "Never", "Always"]},
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 31},
        "securityContext": {
            "type": "object",
            "required": ["runAsNonRoot", "seccompProfile"],
            "properties": {"runAsNonRoot": {"const": True}},
        },
        "containers": {"type": "array", "minItems": 1, "items": _CONTAINER},
        "volumes": {"type": "array", "items": {"type": "object", "required": ["name"], "minProperties": 2, "maxProperties": 2}},
    },
}
_SCHEMA = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {
        "apiVersion": {"enum": ["v1", "apps/v1", "batch/v1"]},
        "kind": {"enum": ["ConfigMap", "Job", "Deployment", "Service", "PersistentVolumeClaim"]},
        "metadata": {"type": "object", "required": ["name", "labels"], "properties": {"labels": _LABELS}},
    },
}
_VERSIONS = {"ConfigMap": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "Deployment": "apps/v1", "Job": "batch/v1"}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_form(manifest: dict[str, Any]) -> None:
    jsonschema.validate(manifest, _SCHEMA)
    assert manifest["apiVersion"] == _VERSIONS[manifest["kind"]]
    if manifest in PODS:
        template = manifest["spec"]["template"]
        jsonschema.validate(template["spec"], _POD)
        wanted = manifest["spec"].get("selector", {}).get("matchLabels", {})
        assert wanted.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("manifest", PODS, ids=lambda one: one["metadata"]["name"])
def test_what_it_names_exists(manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]["template"]["spec"]
    claims = {one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "PersistentVolumeClaim"}
    volumes = {one["name"] for one in spec["volumes"]}
    for volume in spec["volumes"]:
        assert volume.get("persistentVolumeClaim", {}).get("claimName", "archiver-data") in claims
    for container in spec["containers"]:
        assert {one["name"] for one in container["volumeMounts"]} == volumes
        command, *arguments = container["args"]
        assert command in COMMANDS
        if command == "worker":
            assert parser().parse_args(arguments).queue == manifest["metadata"]["labels"]["app.kubernetes.io/component"]


def test_settings_are_valid_and_no_secret_is_among_them() -> None:
    (config,) = [one["data"] for one in MANIFESTS if one["kind"] == "ConfigMap"]
    secrets = {
        "DATABASE_URL": "postgresql://archiver_app@postgres/archiver",
        "REDIS_URL": "redis://valkey:6379/0",
        "MEILI_MASTER_KEY": "x" * 16,
        "STORAGE_S3_ACCESS_KEY_ID": "id",
        "STORAGE_S3_SECRET_ACCESS_KEY": "secret",
        "STORAGE_ENCRYPTION_KEY": "k:" + "A" * 43 + "=",
        "ENCRYPTION_KEY": "k:" + "A" * 43 + "=",
    }
    settings = load_settings({**config, **secrets}, Path("none"))
    assert settings.storage_type == "s3"
    assert not settings.embedded
    assert not any(word in name for name in config for word in ("PASSWORD", "SECRET", "KEY"))


def test_the_service_finds_the_web_process() -> None:
    (service,) = [one for one in MANIFESTS if one["kind"] == "Service"]
    (web,) = [one for one in PODS if one["metadata"]["name"] == "archiver-web"]
    assert service["spec"]["selector"].items() <= web["spec"]["template"]["metadata"]["labels"].items()
    ports = {port["name"] for one in web["spec"]["template"]["spec"]["containers"] for port in one["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
