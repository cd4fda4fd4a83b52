"""The OpenAPI document as a page can show it: groups of routes with parameters, bodies and answers, and the schemas they name.

Pure: from the document to plain values. What a value of a schema looks like is a list of pieces, so that names of schemas can
be links.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_REF = "#/components/schemas/"
_ID = "00000000-0000-0000-0000-000000000000"
_DEEPEST_EXAMPLE = 4

Type = list[tuple[str, str | None]]
"""Pieces of text; with the name of a schema where one is meant."""


@dataclass(frozen=True, slots=True)
class Field:
    """Of a schema; as a parameter, also where it goes: path, query or header."""

    name: str
    type: Type
    required: bool
    description: str
    place: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    example: str = ""
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    media_type: str
    type: Type
    description: str
    example: str
    is_file: bool


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Field]
    body: Body | None
    answers: list[tuple[str, str, Type]]
    is_change: bool


@dataclass(frozen=True, slots=True)
class RouteGroup:
    name: str
    operations: list[Operation]


@dataclass(frozen=True, slots=True)
class Schema:
    name: str
    description: str
    fields: list[Field]
    type: Type


def read_groups(document: dict[str, Any]) -> list[RouteGroup]:
    """In the order in which the routes come; a route belongs to its first tag."""
    found: dict[str, list[Operation]] = {}
    for path, ways in document["paths"].items():
        for method, way in ways.items():
            found.setdefault(way["tags"][0], []).append(_operation(document, path, method, way))
    return [RouteGroup(name, operations) for name, operations in found.items()]


def read_schemas(document: dict[str, Any]) -> list[Schema]:
    found = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = set(schema.get("required", ()))
        fields = [_field(key, value, key in required) for key, value in schema.get("properties", {}).items()]
        found.append(Schema(name, schema.get("description", ""), fields, [] if fields else type_of(schema)))
    return found


def _operation(document: dict[str, Any], path: str, method: str, way: dict[str, Any]) -> Operation:
    parameters = [_parameter(parameter) for parameter in way.get("parameters", ())]
    answers = [(status, answer.get("description", ""), _answer_type(answer)) for status, answer in way["responses"].items()]
    return Operation(
        id=way["operationId"],
        method=method.upper(),
        path=path,
        summary=way["summary"],
        description=way.get("description", ""),
        parameters=sorted(parameters, key=lambda field: ("path", "query", "header").index(field.place)),
        body=_body(document, way["requestBody"]) if "requestBody" in way else None,
        answers=answers,
        is_change=method != "get",
    )


def _parameter(parameter: dict[str, Any]) -> Field:
    schema = parameter["schema"]
    plain = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
    inner = plain.get("items", plain)
    default = schema.get("default")
    return Field(
        name=parameter["name"],
        type=type_of(schema),
        required=parameter.get("required", False),
        description=parameter.get("description", ""),
        place=parameter["in"],
        choices=("true", "false") if inner.get("type") == "boolean" else tuple(map(str, inner.get("enum", ()))),
        default="" if default is None else json.dumps(default).strip('"'),
        example=next(map(str, schema.get("examples", ())), ""),
        is_list="items" in plain,
    )


def _field(name: str, schema: dict[str, Any], required: bool) -> Field:
    return Field(name=name, type=type_of(schema), required=required, description=schema.get("description", ""))


def _body(document: dict[str, Any], given: dict[str, Any]) -> Body:
    media_type, content = next(iter(given["content"].items()))
    is_file = media_type != "application/json"
    example = "" if is_file else json.dumps(example_of(document, content["schema"]), indent=2, ensure_ascii=False)
    return Body(media_type, type_of(content["schema"]), given.get("description", ""), example, is_file)


def _answer_type(answer: dict[str, Any]) -> Type:
    content = answer.get("content", {})
    if not content:
        return []
    media_type, described = next(iter(content.items()))
    schema = described.get("schema") or {}
    return type_of(schema) if media_type.endswith("json") and schema else [(media_type, None)]


def type_of(schema: dict[str, Any]) -> Type:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return [(name, name)]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return _join([type_of(option) for option in options])
    if "enum" in schema:
        return [(" | ".join(json.dumps(value) for value in schema["enum"]), None)]
    if "const" in schema:
        return [(json.dumps(schema["const"]), None)]
    kind = schema.get("type", "any")
    if kind == "array":
        return [("list of ", None), *type_of(schema.get("items", {}))]
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return [("object of ", None), *type_of(schema["additionalProperties"])]
    return [(schema.get("format", kind) if kind == "string" else str(kind), None)]


def _join(options: list[Type]) -> Type:
    pieces: Type = []
    for option in options:
        pieces += [(" or ", None), *option] if pieces else option
    return pieces


def example_of(document: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> Any:
    """What has to be given, with something that fits in each place; what may be left out is left out."""
    if "$ref" in schema:
        return example_of(document, document["components"]["schemas"][schema["$ref"].removeprefix(_REF)], depth)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    if "default" in schema:
        return schema["default"]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return example_of(document, options[0], depth)
    if schema.get("type") == "object" or "properties" in schema:
        if depth >= _DEEPEST_EXAMPLE:
            return {}
        required = set(schema.get("required", ()))
        inner = {name: value for name, value in schema.get("properties", {}).items() if name in required}
        return {name: example_of(document, value, depth + 1) for name, value in inner.items()}
    if schema.get("format") == "uuid":
        return _ID
    return {"array": [], "integer": schema.get("minimum", 0), "number": 0, "boolean": False}.get(schema.get("type", ""), "")
