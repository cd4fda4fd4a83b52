"""Mail of our own making with its expected values: by hand in tests/corpus, in families in tests/support/own_mail."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from archiver.mail.message import Message, read_message
from archiver.mail.text.marks import Mark
from tests.support.own_mail import FAMILIES, own_cases

CASES = sorted((Path(__file__).parents[2] / "corpus").glob("*.json"))


def values(message: Message) -> dict[str, Any]:
    headers = message.headers
    return {
        "subject": headers.subject,
        "from": [str(address) for address in headers.from_],
        "to": [str(address) for address in headers.to],
        "cc": [str(address) for address in headers.cc],
        "reply_to": [str(address) for address in headers.reply_to],
        "date": headers.date.isoformat() if headers.date else None,
        "list_id": headers.list_id,
        "text": message.text.strip(),
        "defects": list(message.defects),
        "flags": [name for name in message.flags.__slots__ if getattr(message.flags, name)],
        "marks": {
            mark.value: [message.text[span.start : span.end].strip() for span in message.spans if span.mark is mark]
            for mark in Mark
        },
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_case(case: Path) -> None:
    check(read_message(case.with_suffix(".eml").read_bytes()), json.loads(case.read_text()))


@pytest.mark.parametrize("family", ["real", "bounces", "torture"])
def test_family(family: str) -> None:
    cases = [case for make in FAMILIES[family] for case in make()]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        try:
            check(read_message(case.raw), case.expected)
        except AssertionError as error:
            raise AssertionError(f"{case.name} ({case.shows})") from error


def check(message: Message, wanted_values: dict[str, Any]) -> None:
    found = values(message)
    for key, expected in wanted_values.items():
        if key in ("attachments", "deliveries"):
            things = getattr(message, key)
            assert len(things) == len(expected), things
            for thing, wanted in zip(things, expected, strict=True):
                assert {name: getattr(thing, name) for name in wanted} == wanted
        elif key == "instant":
            assert message.headers.date == datetime.fromisoformat(expected)
        elif key == "marks":
            assert {mark: found["marks"][mark] for mark in expected} == {
                mark: [text.strip() for text in texts] for mark, texts in expected.items()
            }
        elif key.endswith("_includes"):
            assert [text for text in expected if text not in found[key.removesuffix("_includes")]] == []
        elif key == "defects_include":
            assert [code for code in expected if not any(defect.startswith(code) for defect in message.defects)] == []
        elif key.endswith("_excludes"):
            searched = message.new_text if key.startswith("new_") else message.text
            assert [text for text in expected if text in searched] == []
        else:
            assert found[key] == expected


def test_there_are_cases() -> None:
    assert len(CASES) > 50
    assert sum(1 for _ in own_cases()) > 500


def test_files_come_out_whole() -> None:
    folder = CASES[0].parent
    uu = read_message((folder / "uuencode.eml").read_bytes()).attachments[0]
    assert uu.content == b"hello uu world"
    yenc = read_message((folder / "yenc.eml").read_bytes()).attachments[0]
    assert yenc.content == bytes(range(256))
    tnef = read_message((folder / "tnef.eml").read_bytes()).attachments[0]
    assert tnef.content == b"the plan"
