"""The reference is the document, whole: every route, parameter and schema, for those who are signed in."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

from archiver.access.principal import KeyScope
from archiver.http.api.openapi import document
from archiver.http.api.reference import example_of, read_groups, read_schemas, type_of
from tests.integration.http.conftest import Company

DOCUMENT = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text())


def test_the_document_is_served_to_people_and_keys(company: Company) -> None:
    with company.client() as stranger:
        refused = stranger.get("/openapi.json")
        assert refused.status_code == 401
        assert refused.json()["code"] == "not_signed_in"
        key = company.key("alice", KeyScope.SEARCH)
        assert stranger.get("/openapi.json", headers={"Authorization": f"Bearer {key}"}).json() == DOCUMENT
    with company.client("alice") as alice:
        served = alice.get("/openapi.json")
        assert served.headers["Content-Type"] == "application/json"
        assert served.json() == DOCUMENT


def test_the_page_has_every_route_parameter_and_schema(company: Company) -> None:
    with company.client("alice") as alice:
        page = alice.get(f"{company.url}/settings/api").text
    ids = re.findall(r'<details class="operation" id="([\w-]+)"', page)
    operations = {way["operationId"] for ways in DOCUMENT["paths"].values() for way in ways.values()}
    schemas = {f"schema-{name}" for name in DOCUMENT["components"]["schemas"]}
    assert len(ids) == len(set(ids))
    assert set(ids) == operations | schemas
    assert set(re.findall(r'href="#(schema-\w+)"', page)) <= schemas
    for path, ways in DOCUMENT["paths"].items():
        for way in ways.values():
            shown = page[page.index(f'id="{way["operationId"]}"') :]
            form = shown[: shown.index("</form>")]
            assert f'data-path="{path}"' in form
            assert set(re.findall(r'name="([\w-]+)" data-place="(?:path|query|header)"', form)) == {
                parameter["name"] for parameter in way.get("parameters", ())
            }


def test_it_loads_nothing_from_elsewhere(company: Company) -> None:
    with company.client("alice") as alice:
        page = alice.get(f"{company.url}/settings/api").text
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page) == []
    assert unescape(page).count("Bearer $KEY") == len([way for ways in DOCUMENT["paths"].values() for way in ways])


def test_a_stranger_is_shown_the_door(company: Company) -> None:
    with company.client() as stranger:
        answer = stranger.get(f"{company.url}/settings/api")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in?next=%2Fsettings%2Fapi")


def test_types_and_examples_are_what_the_schema_says() -> None:
    assert type_of({"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]}) == [
        ("A", "A"),
        (" or ", None),
        ("null", None),
    ]
    assert type_of({"type": "array", "items": {"type": "string", "format": "uuid"}}) == [("list of ", None), ("uuid", None)]
    described = document()
    made = example_of(described, {"$ref": "#/components/schemas/NewUpload"})
    assert set(made) == set(described["components"]["schemas"]["NewUpload"]["required"])
    endless = {
        "components": {
            "schemas": {"A": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/components/schemas/A"}}}}
        }
    }
    assert example_of(endless, {"$ref": "#/components/schemas/A"}) == {"a": {"a": {"a": {"a": {}}}}}
    assert sum(len(group.operations) for group in read_groups(described)) == sum(map(len, described["paths"].values()))
    assert len(read_schemas(described)) == len(described["components"]["schemas"])
