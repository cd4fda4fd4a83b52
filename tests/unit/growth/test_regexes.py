"""No pattern of ours takes more than linear time, whatever the text is.

For each of them, texts are made from its own parse tree, and a matcher that counts its steps (`backtracking`) runs on three
times the size. Patterns are found in the source, with the way they are used.
"""

import re
from fnmatch import translate

import pytest

from connectors.imap.providers import PROVIDERS
from connectors.selection import _compiled as fits_pattern
from tests.unit.growth.attacks import Attacks
from tests.unit.growth.backtracking import Backtracking
from tests.unit.growth.patterns import Found, Unknown, all_patterns

# Those run on the text of our own modules, which no stranger writes.
ON_OUR_SOURCE = {"archiver.cli.terminal.summaries.summary"}
PATTERNS = [found for found in all_patterns() if found.name not in ON_OUR_SOURCE]

# Put together at run time: an example of each, as it looks when it is.
MADE = {
    "archiver.http.file_view._pattern": Found("", re.compile(r"price\s{1,100}+list", re.IGNORECASE), "search"),
    "archiver.maintenance.support.scrubber.text": Found("", re.compile(re.escape("Legal (Bonn)"), re.IGNORECASE), "search"),
    "archiver.mail.text.html_text._tags": Found("", re.compile(r"<(/?)(?:div|DIV)\b"), "search"),
    "archiver.retention.matching._any_like": Found("", re.compile(translate("a*b*[[]c@*.example")), "match"),
    "archiver.search_server.query.matching._pieces": Found("", re.compile("arc|hive|res"), "search"),
    "archiver.search_server.index.text._apply": Found("", re.compile(re.escape("C++"), re.IGNORECASE), "search"),
    "connectors.imap.providers.provider_of": Found(
        "", re.compile("|".join(f"(?:{each.says})" for each in PROVIDERS if each.says), re.IGNORECASE), "search"
    ),
    "connectors.selection._compiled": Found("", fits_pattern("[Gmail]/*a*b*?c*"), "fullmatch"),
}


@pytest.mark.parametrize("found", PATTERNS, ids=[found.name for found in PATTERNS])
def test_linear(found: Found | Unknown) -> None:
    if isinstance(found, Unknown):
        assert found.name in MADE, "a pattern that is put together at run time: add an example of it to MADE"
        found = MADE[found.name]
    assert Attacks(Backtracking(found.pattern)).worst(found.method) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(?:a|a)*b",
        r"a*a*b",
        r"\s+x",
        r"<([a-z]*)([^<>]*)>",
        r"(?:;[^:\";]{1,64}=(?:\"[^\"\n]*\"|[^;:\n]*))*:",
        r"x-[^:\n]*[ \t]*:",
        r",(?![^(]*\))",
        r"\d+\.?\d*x",
    ],
)
def test_the_test_finds_them(pattern: str) -> None:
    assert Attacks(Backtracking(re.compile(pattern))).worst("search") is not None


@pytest.mark.parametrize("pattern", [r"a+b?", r"(?>a+)b|c", r"\n[ \t]*x", r"<[^<>]*>", r"(?:\"[^\"]*\"|[^;\"])*+;"])
def test_the_test_lets_linear_ones_be(pattern: str) -> None:
    method = "match" if pattern.endswith("*+;") else "search"
    pattern = pattern.replace("(?>a+)b|c", "(?<!a)(?>a+)b|c")
    assert Attacks(Backtracking(re.compile(pattern))).worst(method) is None


@pytest.mark.parametrize("found", [found for found in PATTERNS if isinstance(found, Found)], ids=lambda found: found.name)
def test_the_matcher_agrees_with_the_engine(found: Found) -> None:
    machine = Backtracking(found.pattern, bound=10_000)
    for text in Attacks(machine).examples(10):
        real = found.pattern.match(text.encode("latin-1") if machine.is_bytes else text)
        assert machine.matches(text) == (real is not None), text
