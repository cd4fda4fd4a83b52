"""The document in docs/ is the one of the routes, and whatever fits it, no answer is a failure of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from archiver.http.api.openapi import document
from tests.integration.http.conftest import Client, Company
from tests.support.waiting import DEADLINE_SECONDS

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]

schemathesis.serializer.alias("message/rfc822", "application/octet-stream")
described = document()
schema = schemathesis.openapi.from_dict(described).exclude(
    path=["/api/v1/progress", "/api/v1/session"]  # a stream without an end; the end of the session that asks
)
asked: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
    "derandomize": True,
    "database": None,
}


def test_the_document_in_docs_is_current() -> None:
    assert json.loads(DOCUMENT.read_text()) == described, "run scripts/openapi"


def test_every_route_is_described() -> None:
    for path, ways in described["paths"].items():
        for method, way in ways.items():
            assert way["summary"], (method, path)
            assert way["tags"], (method, path)
            assert re.fullmatch("[a-z_]+", way["operationId"]), (method, path)
    names = [way["operationId"] for ways in described["paths"].values() for way in ways.values()]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def admin(company: Company) -> Client:
    return company.client("admin")


def ask(case: Any, company: Company, admin: Client) -> None:
    headers = {"Cookie": f"archiver={admin.cookies['archiver']}", "X-CSRF-Token": admin.headers["X-CSRF-Token"]}
    answer = case.call(base_url=company.url, headers=headers, timeout=DEADLINE_SECONDS)
    case.validate_response(answer, checks=CHECKS)


@schema.parametrize()
@settings(max_examples=2, **asked)
def test_no_request_makes_it_fail(case: Any, company: Company, admin: Client) -> None:
    ask(case, company, admin)


@pytest.mark.chaos
@schema.parametrize()
@settings(max_examples=200, **{**asked, "derandomize": False})
def test_no_request_makes_it_fail_at_length(case: Any, company: Company, admin: Client) -> None:
    ask(case, company, admin)
