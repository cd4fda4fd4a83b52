"""The dashboard: months as the searches behind them count them, and health for those who run the archive."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from archiver.access.scope import EVERYTHING
from archiver.reading import statistics
from tests.integration.http.conftest import Company

NEW_YEAR = datetime(2023, 12, 31, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "month"), [(UTC, (2023, 12)), (ZoneInfo("Europe/Berlin"), (2024, 1)), (ZoneInfo("America/New_York"), (2023, 12))]
)
def test_months_of_the_readers_zone(company: Company, zone: tzinfo, month: tuple[int, int]) -> None:
    before = company.value("SELECT sort_at FROM messages WHERE id = :i", i=company.messages["bob"])
    company.act("UPDATE messages SET sort_at = :at WHERE id = :i", at=NEW_YEAR, i=company.messages["bob"])
    with company.engine.connect() as connection:
        found = statistics.figures(connection, EVERYTHING, zone)
    assert [(one.at.year, one.at.month) for one in found.months] == [month, (2024, 3)]
    company.act("UPDATE messages SET sort_at = :at WHERE id = :i", at=before, i=company.messages["bob"])


def test_health_is_shown_to_those_who_run_it_and_numbers_lead_to_their_mail(company: Company) -> None:
    with company.client("auditor") as client:
        html = client.get(f"{company.url}/dashboard").text
    assert len(re.findall(r'data-state="(?:good|warn|bad)"', html)) == 7
    assert "<meter" in html
    assert 'href="/?q=source%3Awork"' in html
    with company.client("alice") as client:
        mine = client.get(f"{company.url}/dashboard").text
    assert "data-state" not in mine
    assert "<meter" not in mine
