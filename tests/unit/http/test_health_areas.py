"""Every rule belongs to one part of the dashboard's health."""

from __future__ import annotations

from archiver.alerts.rules import RULES
from archiver.http.pages.health import AREAS


def test_each_rule_has_one_area() -> None:
    named = [rule for _, rules in AREAS.values() for rule in rules]
    assert sorted(named) == sorted(RULES)
