"""Text on its way into Postgres."""

from __future__ import annotations

import orjson
import pytest

from archiver.db.values import clean, json_bytes, json_text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\ud800b\udfff", "a\ufffdb\ufffd"),
        ("Übersicht \U0001f600", "Übersicht \U0001f600"),
        ({"k\0": ["v\0", {"\ud800": 1}]}, {"k\ufffd": ["v\ufffd", {"\ufffd": 1}]}),
        (("a\0", None, 5, True), ("a\ufffd", None, 5, True)),
    ],
)
def test_clean_replaces_only_what_postgres_cannot_store(given: object, expected: object) -> None:
    assert clean(given) == expected


def test_json_keeps_a_backslash_that_only_looks_like_a_nul() -> None:
    assert orjson.loads(json_text({"a": "\\u0000"})) == {"a": "\\u0000"}


@pytest.mark.parametrize("bad", ["\0", "\ud800"])
def test_json_is_cleaned_in_keys_and_values(bad: str) -> None:
    assert orjson.loads(json_text({f"k{bad}": [f"v{bad}"]})) == {"k\ufffd": ["v\ufffd"]}
    assert orjson.loads(json_bytes({f"k{bad}": [f"v{bad}"]}).data) == {"k\ufffd": ["v\ufffd"]}
