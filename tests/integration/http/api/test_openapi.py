"""The document in docs/ is the one of the routes, and whatever fits it, no answer is a failure of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from archiver.http.api.openapi import document
from tests.integration.http.conftest import Client, Company
from tests.support.waiting import DEADLINE_SECONDS

DOCUMENT = Path(__file__).parents[4] / "docs" / "openapi.json"
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]

schemathesis.serializer.alias("message/rfc822", "application/octet-stream")
described = document()
_EXCLUDED = ["/api/v1/progress", "/api/v1/session"]  # a stream without an end; the end of the session that asks
schema = schemathesis.openapi.from_dict(described).exclude(path=_EXCLUDED)
Operation = APIOperation[Any, Any, Any, Any]
_ALL: list[Operation] = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
OPERATIONS = [pytest.param(one, id=one.label) for one in _ALL]
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
    assert len(_ALL) == sum(len(ways) for path, ways in described["paths"].items() if path not in _EXCLUDED)
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


def ask_about(operation: Operation, examples: settings, company: Company, admin: Client) -> None:
    @examples
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        ask(case, company, admin)

    run()


# Parametrised by pytest: the items that schemathesis makes share one name, and of these pytest-xdist runs a single one.
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_makes_it_fail(operation: Operation, company: Company, admin: Client) -> None:
    ask_about(operation, settings(max_examples=2, **asked), company, admin)


@pytest.mark.chaos
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_makes_it_fail_at_length(operation: Operation, company: Company, admin: Client) -> None:
    ask_about(operation, settings(max_examples=200, **{**asked, "derandomize": False}), company, admin)
