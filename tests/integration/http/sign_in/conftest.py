"""A person who signs in, without pauses left over from other tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from archiver.access.users import User
from tests.integration.http.conftest import PASSWORD, Client, Company


@pytest.fixture(autouse=True)
def _no_pauses(company: Company) -> Iterator[None]:
    yield
    company.act("DELETE FROM sign_in_pauses")


@pytest.fixture
def dora(company: Company, request: pytest.FixtureRequest) -> User:
    name = f"d{abs(hash(request.node.name)) % 10**9}"
    return company.add_user(f"{name}@example.org", password=PASSWORD)


def sign_in(client: Client, email: str, password: str = PASSWORD, code: str | None = None) -> int:
    answer = client.post("/session", json={"email": email, "password": password, "code": code})
    if answer.status_code == 201:
        client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
    return answer.status_code
