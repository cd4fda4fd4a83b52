"""Derives from the settings of an index how each attribute is indexed: as words, values or columns."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from archiver.search_server.index.settings import custom_rule
from archiver.search_server.index.text import Segmenter

LAYOUT = ("positions",)


@dataclass(frozen=True)
class FieldPlan:
    """How documents are indexed. Settings with equal plans can share a Tantivy index."""

    searchable: tuple[str, ...]
    filterable: tuple[str, ...]
    columns: tuple[str, ...]
    separators: tuple[str, ...]
    non_separators: tuple[str, ...]
    dictionary: tuple[str, ...]
    layout: tuple[str, ...] = ()
    """What each document has besides: `positions` for the rule wordPosition. Indexes of earlier releases have nothing."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> FieldPlan:
        filterable: list[str] = []
        for item in settings["filterableAttributes"]:
            filterable.extend([item] if isinstance(item, str) else item["attributePatterns"])
        if settings["distinctAttribute"]:
            filterable.append(settings["distinctAttribute"])
        rules = [rule.attribute for rule in map(custom_rule, settings["rankingRules"]) if rule]
        searchable = settings["searchableAttributes"]
        return cls(
            searchable=("*",) if "*" in searchable else tuple(sorted(searchable)),
            filterable=tuple(sorted(set(filterable))),
            columns=tuple(sorted({*settings["sortableAttributes"], *rules})),
            separators=tuple(settings["separatorTokens"]),
            non_separators=tuple(settings["nonSeparatorTokens"]),
            dictionary=tuple(settings["dictionary"]),
            layout=LAYOUT,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FieldPlan:
        return cls(**{name: tuple(items) for name, items in value.items()})

    def to_json(self) -> dict[str, list[str]]:
        return {field.name: list(getattr(self, field.name)) for field in fields(self)}

    @property
    def has_positions(self) -> bool:
        return "positions" in self.layout

    @cached_property
    def segmenter(self) -> Segmenter:
        return Segmenter(self.separators, self.non_separators, self.dictionary)

    def is_searchable(self, path: str) -> bool:
        return self.searchable == ("*",) or covered(path, self.searchable)

    def is_filterable(self, path: str) -> bool:
        return covered(path, self.filterable)


def covered(path: str, names: tuple[str, ...] | list[str]) -> bool:
    """Whether one of the names is this attribute, an object around it, or a pattern that fits it."""
    for name in names:
        if path == name or path.startswith(f"{name}."):
            return True
        if "*" in name and fnmatch.fnmatchcase(path, name):
            return True
    return False
