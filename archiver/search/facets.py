"""Facets: the number of hits per sender, year, folder, … without names from mailboxes that the reader may not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, tzinfo
from typing import Final
from uuid import UUID

from archiver.search.document import INDEX_SETTINGS
from archiver.search.names import DatabaseNames
from archiver.search.query.compiler import Search
from archiver.search.searcher import Counted, IndexSearcher, narrow
from archiver.search.tokens import copy_token, year_of

FACETS: Final = ("sender", "domain", "year", "month", "folder", "label", "type", "mailbox")
SHOWN: Final = 20

_FULL: Final = INDEX_SETTINGS["faceting"]["maxValuesPerFacet"]
_RECOUNTED: Final = 50
_PLAIN: Final = {"type": "kinds"}
_YEARS_BY_MONTH: Final = 2


@dataclass(frozen=True, slots=True)
class FacetValue:
    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """Interprets the counts of a response for one user: the visible mailboxes and the time zone."""

    searcher: IndexSearcher
    names: DatabaseNames
    mailboxes: frozenset[UUID] | None
    zone: tzinfo
    addresses: Callable[[Sequence[UUID]], Mapping[UUID, str]]
    most: int = SHOWN
    """Values of each facet, but for years and months, which are all there."""

    def attributes(self, wanted: Sequence[str]) -> list[str]:
        """The attributes the engine has to count: folders and labels also need the mailboxes, months also need the years."""
        by_copy = ["mailbox"] if self.mailboxes is not None and {"folder", "label"} & set(wanted) else []
        by_year = ["year"] if "month" in wanted else []
        return list(dict.fromkeys([*map(self._attribute, wanted), *by_copy, *by_year]))

    def read(self, wanted: Iterable[str], counted: Counted, searches: Sequence[Search]) -> dict[str, list[FacetValue]]:
        return {name: self._read(name, counted, searches) for name in wanted}

    def _attribute(self, name: str) -> str:
        if name in ("folder", "label") and self.mailboxes is None:
            return f"any_{name}"
        return _PLAIN.get(name, name)

    def _read(self, name: str, counted: Counted, searches: Sequence[Search]) -> list[FacetValue]:
        counts = counted.facets.get(self._attribute(name), {})
        if name == "year":
            found = self._years(counts, searches)
            return [FacetValue(value, found[value]) for value in sorted(found, reverse=True)]
        if name == "month":
            years = counted.facets.get("year", {})
            return [FacetValue(value, count) for value, count in self._months(counts, years, searches).items()]
        if name == "mailbox":
            counts = self._mailboxes(counts, searches)
        elif name in ("folder", "label") and self.mailboxes is not None:
            counts = self._places(name, counts, searches, self.mailboxes, apart=self._are_apart(counted, self.mailboxes))
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: self.most]
        return [FacetValue(_readable(value), count) for value, count in best if count]

    def _are_apart(self, counted: Counted, mailboxes: frozenset[UUID]) -> bool:
        """Whether no message is in two of the mailboxes, so that their counts can be added."""
        counts = counted.facets.get("mailbox", {})
        return len(counts) < _FULL and sum(count for one, count in counts.items() if UUID(one) in mailboxes) == counted.total

    def _years(self, counts: dict[str, int], searches: Sequence[Search]) -> dict[str, int]:
        found: dict[str, int] = {}
        for value, count in counts.items():
            year = f"{year_of(value, self.zone):04}"
            found[year] = found.get(year, 0) + count
        if len(counts) >= _FULL:
            found = self._recount({year: self._range(int(year)) for year in found}, searches)
        return found

    def _months(self, counts: dict[str, int], by_year: dict[str, int], searches: Sequence[Search]) -> dict[str, int]:
        """Only for a short period; years show a longer one better.

        The index has months in UTC. Mail between the start of a month in UTC and in the user's zone is counted separately, and
        moved.
        """
        years = sorted({year_of(value, self.zone) for value in by_year})
        if not years or years[-1] - years[0] >= _YEARS_BY_MONTH or not MINYEAR < years[0] <= years[-1] < MAXYEAR:
            return {}
        months = range(years[0] * 12, (years[-1] + 1) * 12)
        found = {month: counts.get(_month(month), 0) for month in months}
        for step, strips in self._between_zones(months).items():
            apart = self.searcher.count([narrow(search, strips) for search in searches], ["month"]).facets["month"]
            for month in months:
                found[month] += apart.get(_month(month - step), 0) - apart.get(_month(month), 0)
        return {_month(month): count for month, count in found.items()}

    def _between_zones(self, months: range) -> dict[int, str]:
        """Filters for times whose month differs from UTC: those in the next month (1), and in the previous one (-1)."""
        found: dict[int, list[str]] = {}
        for month in (*months, months.stop):
            there, here = (int(datetime(month // 12, month % 12 + 1, 1, tzinfo=zone).timestamp()) for zone in (UTC, self.zone))
            if here != there:
                strip = f"(date >= {min(here, there)} AND date < {max(here, there)})"
                found.setdefault(1 if here < there else -1, []).append(strip)
        return {step: f"({' OR '.join(strips)})" for step, strips in found.items()}

    def _range(self, year: int) -> str:
        start, end = (int(datetime(one, 1, 1, tzinfo=self.zone).timestamp()) for one in (year, year + 1))
        return f"date >= {start} AND date < {end}"

    def _mailboxes(self, counts: dict[str, int], searches: Sequence[Search]) -> dict[str, int]:
        if self.mailboxes is not None and len(counts) >= _FULL:  # mailboxes of others may have displaced them
            counts = self._recount({str(one): f'mailbox = "{one}"' for one in sorted(self.mailboxes)[:_RECOUNTED]}, searches)
        by_id = {UUID(value): count for value, count in counts.items()}
        if self.mailboxes is not None:
            by_id = {one: count for one, count in by_id.items() if one in self.mailboxes}
        best = sorted(by_id, key=lambda one: -by_id[one])[: self.most]
        return {address: by_id[one] for one, address in self.addresses(best).items()}

    def _places(
        self, name: str, counts: dict[str, int], searches: Sequence[Search], mailboxes: frozenset[UUID], *, apart: bool
    ) -> dict[str, int]:
        """Folders of the visible mailboxes, by name. A name that several of them share is counted by a separate search."""
        if len(counts) >= _FULL:
            look_up = self.names.folders if name == "folder" else self.names.labels
            values = look_up("*", mailboxes, _RECOUNTED)
            return self._recount({value: _among(name, mailboxes, [value]) for value in values}, searches)
        found: dict[str, int] = {}
        spellings: dict[str, list[str]] = {}
        for value, count in counts.items():
            mailbox, _, place = value.partition("/")
            if UUID(mailbox) in mailboxes:
                found[place] = found.get(place, 0) + count
                spellings.setdefault(place, []).append(value)
        if apart:
            return found
        several = [place for place in sorted(found, key=lambda one: -found[one])[:_RECOUNTED] if len(spellings[place]) > 1]
        conditions = {place: f"{name} IN [{_list(spellings[place])}]" for place in several}
        return {**found, **self._recount(conditions, searches)}

    def _recount(self, conditions: Mapping[str, str], searches: Sequence[Search]) -> dict[str, int]:
        asked = [narrow(search, condition) for condition in conditions.values() for search in searches]
        totals = iter(self.searcher.totals(asked))
        return {value: sum(next(totals) for _ in searches) for value in conditions}


def _among(name: str, mailboxes: Iterable[UUID], values: Iterable[str]) -> str:
    return f"{name} IN [{_list(copy_token(mailbox, value) for mailbox in mailboxes for value in values)}]"


def _month(number: int) -> str:
    return f"{number // 12:04}-{number % 12 + 1:02}"


def _list(values: Iterable[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)


def _readable(value: str) -> str:
    """A token decoded for display."""
    for sign in "\"'\\%":
        value = value.replace(f"%{ord(sign):02x}", sign)
    return value
