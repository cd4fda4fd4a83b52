"""Builds the ranked query: Meilisearch's ranking rules as one number that Tantivy sums up.

Each rule is a digit of a number in mixed radix, the first rule the most significant; a document's score is the sum of constant
scores of the clauses that it matches. The number stays below 2^24, so that 32-bit floats represent it exactly, and it can be
taken apart again: for sorting between two rules, and for the details of a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from tantivy import Occur, Query

from archiver.search_server.index.engine import Snapshot
from archiver.search_server.index.word_positions import POSITION_STEPS, position_term
from archiver.search_server.query.query_terms import ParsedQuery, Unit

SCORED_UNITS = 10
ATTRIBUTE_STEPS = 7
PROXIMITY_STEPS = 2
PROXIMITY_SLOP = 4
PROXIMITY_PAIRS = 6
# words in this many documents are not ranked by proximity; below the smaller number, also at some distance
NEAR_DOCUMENTS = 20_000
SLOPPY_DOCUMENTS = 4_000
PROXIMITY_ATTRIBUTES = 12
PREFIX_ATTRIBUTES = 8
# a word that occurs in this many documents as typed is not searched for with typos, which would add noise and cost
ENOUGH_FOR_NO_TYPO = 200
ENOUGH_FOR_ONE_TYPO = 20
POSITION_ATTRIBUTES = 8
_SCORED = ("words", "typo", "proximity", "attributeRank", "wordPosition", "exactness")
_SCORES = 1 << 24  # 32-bit floats hold whole numbers up to here


def rules_in_order(rules: Sequence[str]) -> tuple[str, ...]:
    """The rules as they work: `attribute` is two of them, and `words` comes before all that looks at single words."""
    order = list(dict.fromkeys(one for rule in rules for one in (_SCORED[3:5] if rule == "attribute" else (rule,))))
    first = next((place for place, rule in enumerate(order) if rule in _SCORED), len(order))
    order = [rule for rule in order if rule != "words"]
    return (*order[:first], "words", *order[first:])


@dataclass(frozen=True, slots=True)
class Scale:
    """The digits of a score: the weight of one step of each rule, and the number of its steps."""

    weights: dict[str, int]
    steps: dict[str, int]

    @classmethod
    def of(cls, rules: Sequence[str], units: int) -> Scale:
        n = max(1, min(units, SCORED_UNITS))
        steps = {
            "words": n,
            "typo": 2 * n,
            "proximity": PROXIMITY_STEPS * min(n - 1, PROXIMITY_PAIRS),
            "attributeRank": ATTRIBUTE_STEPS * n,
            "exactness": n,
        }
        order = [rule for rule in rules if rule in _SCORED]
        others = reduce(lambda product, rule: product * (steps[rule] + 1), steps, 1)
        steps["wordPosition"] = POSITION_STEPS * min(n, (_SCORES // others - 1) // POSITION_STEPS)
        weights = dict.fromkeys(_SCORED, 0)
        weight = 1
        for rule in reversed(order):
            weights[rule] = weight
            weight *= steps[rule] + 1
        return cls(weights, {rule: steps[rule] for rule in order})

    @property
    def positioned(self) -> int:
        """The number of words whose positions count: all, unless the query is long."""
        return self.steps.get("wordPosition", 0) // POSITION_STEPS

    @property
    def top(self) -> int:
        return sum(self.weights[rule] * count for rule, count in self.steps.items())

    def digit(self, score: float, rule: str) -> int:
        return round(score) // self.weights[rule] % (self.steps[rule] + 1)

    def portion(self, score: float, allowed_typos: int) -> float:
        """A score between 0 and 1: each rule divides what the rules before it leave, as Meilisearch's ranking score does."""
        rank = most = 1
        for rule in self.steps:
            better, levels = self._level(score, rule, allowed_typos)
            rank, most = (rank - 1) * levels + better, most * levels
        return rank / most

    def _level(self, score: float, rule: str, allowed_typos: int) -> tuple[int, int]:
        """How good a hit is by one rule, from 1, and how good it could be."""
        digit, steps = self.digit(score, rule), self.steps[rule]
        if rule == "words":
            return max(1, digit), steps
        if rule == "typo":
            return max(1, allowed_typos + 1 - self.typos(score)), allowed_typos + 1
        return digit + 1, steps + 1

    def typos(self, score: float) -> int:
        return max(0, 2 * self.digit(score, "words") - self.digit(score, "typo"))

    def before(self, rule_place: Sequence[str]) -> int:
        """The divisor that reduces a score to the rules before the given rest of the rules."""
        rest = set(rule_place) & set(self.steps)
        return reduce(lambda product, rule: product * (self.steps[rule] + 1), rest, 1)


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """`scored` ranks; `matching` finds the same documents without ranking, which is cheaper."""

    scored: Query
    matching: Query
    scale: Scale
    parsed: ParsedQuery


@dataclass(frozen=True, slots=True)
class Ranker:
    """Builds queries for one snapshot and one set of attributes, best first.

    `restricted` says that these are not all searchable attributes; then words are looked up attribute by attribute.

    `narrowing` are the filters of the search. The frequency of a word is counted among what they leave, and nothing else
    of the index has a say in what is found and in which order: whoever may see a part of it learns nothing about the rest.
    """

    snapshot: Snapshot
    attributes: tuple[str, ...]
    restricted: bool
    no_typos_on: frozenset[str]
    rules: tuple[str, ...]
    degraded: bool = False
    narrowing: tuple[Query, ...] = ()
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _frequencies: dict[Unit, int] = field(default_factory=dict)

    def build(self, parsed: ParsedQuery, strategy: str) -> RankedQuery:
        units = list(dict.fromkeys(replace(unit, typos=self._typos(unit)) for unit in parsed.units))
        if strategy == "frequency":
            units.sort(key=lambda unit: (not unit.quoted, self._frequency(unit, at_least=0)))
        scale = Scale.of(self.rules, len(units))
        fixed = [unit for unit in units if unit.quoted or strategy == "all"]
        loose = [unit for unit in units if unit not in fixed] if len(fixed) < len(units) else []
        scored = self._structure(fixed, loose, lambda unit, place: self._score(unit, place, units, scale))
        needed = loose[:1] if not fixed else []
        is_alone = len(fixed) + len(needed) == 1
        matching = self._structure(fixed, needed, lambda unit, _: self._matching(unit, is_alone=is_alone))
        negatives = [self._matching(unit) for unit in parsed.negatives]
        return RankedQuery(
            _without(scored, negatives), _without(matching, negatives), scale, replace(parsed, units=tuple(units))
        )

    def _structure(self, fixed: list[Unit], loose: list[Unit], clause: Callable[[Unit, int], Query]) -> Query:
        """Requires all of `fixed` and the first of `loose`; more of `loose`, in order, score higher."""
        chain: Query | None = None
        for place in range(len(loose) - 1, -1, -1):
            level = [(Occur.Must, clause(loose[place], len(fixed) + place))]
            if chain is not None:
                level.append((Occur.Should, chain))
            chain = Query.boolean_query(level)
        parts = [(Occur.Must, clause(unit, place)) for place, unit in enumerate(fixed)]
        if chain is not None:
            parts.append((Occur.Should if fixed else Occur.Must, chain))
        return Query.boolean_query(parts) if parts else Query.all_query()

    # one unit

    def _score(self, unit: Unit, place: int, units: list[Unit], scale: Scale) -> Query:
        if place >= SCORED_UNITS:
            return Query.const_score_query(self._matching(unit), 0.0)
        weights = scale.weights
        best = weights["words"] + 2 * weights["typo"]
        options = [Query.const_score_query(self._exact(unit), float(best + weights["exactness"]))]
        if unit.prefix:
            options.append(Query.const_score_query(self._prefixed(unit), float(best)))
        for typos in range(1, unit.typos + 1):
            score = weights["words"] + (2 - typos) * weights["typo"]
            options.append(Query.const_score_query(self._misspelt(unit, typos), float(score)))
        clauses = [(Occur.Must, Query.disjunction_max_query(options) if len(options) > 1 else options[0])]
        if not self.degraded:
            clauses.extend((Occur.Should, query) for query in self._places(unit, units, scale))
        return Query.boolean_query(clauses) if len(clauses) > 1 else clauses[0][1]

    def _places(self, unit: Unit, units: list[Unit], scale: Scale) -> list[Query]:
        found: list[Query] = []
        place = units.index(unit)
        steps = {"attributeRank": self._by_attribute(unit) if scale.weights["attributeRank"] else []}
        if scale.weights["wordPosition"] and place < scale.positioned:
            steps["wordPosition"] = self._by_position(unit)
        for rule, options in steps.items():
            if options:
                weight = scale.weights[rule]
                found.append(
                    Query.disjunction_max_query(
                        [Query.const_score_query(query, float(weight * step)) for step, query in options]
                    )
                )
        if scale.weights["proximity"] and 0 < place <= PROXIMITY_PAIRS:
            near = self._near(units[place - 1], unit, scale.weights["proximity"])
            if near:
                found.append(Query.disjunction_max_query(near))
        return found

    def _by_attribute(self, unit: Unit) -> list[tuple[int, Query]]:
        """The unit in each attribute, with the number of steps that the attribute is worth."""
        if len(self.attributes) < 2:
            return []
        found: list[tuple[int, Query]] = []
        last = len(self.attributes) - 1
        for rank, name in enumerate(self.attributes):
            step = ATTRIBUTE_STEPS - (rank * ATTRIBUTE_STEPS // last if last > ATTRIBUTE_STEPS else rank)
            if step <= 0:
                break
            if self._may_have(f"t.{name}", unit.words):
                found.append((step, self._run(f"t.{name}", unit.words)))
            # prefixes are not searched for again in long texts, because many documents match
            if unit.prefix and unit.word is not None and rank < PREFIX_ATTRIBUTES and name not in self.snapshot.attributes.long:
                found.append((step, self._fuzzy(f"t.{name}", unit.word, 0, prefix=True)))
        return found

    def _by_position(self, unit: Unit) -> list[tuple[int, Query]]:
        """The unit's first word at the beginnings of attributes, with the steps that its place there is worth."""
        if not self.snapshot.plan.has_positions:
            return []
        word = unit.words[0]
        return [
            (step, Query.term_query(self.snapshot.schema, "p", position_term(name, step, word), "basic"))
            for name in self.attributes[:POSITION_ATTRIBUTES]
            if self._may_have(f"t.{name}", (word,))
            for step in range(POSITION_STEPS, 0, -1)
        ]

    def _near(self, left: Unit, right: Unit, weight: int) -> list[Query]:
        """Both units adjacent, or a few words apart."""
        rarest = min(self._frequency(left), self._frequency(right))
        if rarest > NEAR_DOCUMENTS:
            return []
        # too many phrases can follow a common word
        go_on = self._frequency(left) <= SLOPPY_DOCUMENTS
        options: list[Query] = []
        words: list[str | tuple[int, str]] = [*left.words, *right.words]
        schema = self.snapshot.schema
        for name in self.attributes[:PROXIMITY_ATTRIBUTES]:
            place = f"t.{name}"
            if not self._may_have(place, left.words):
                continue
            if self._may_have(place, right.words):
                options.append(Query.const_score_query(Query.phrase_query(schema, place, words), float(2 * weight)))
                if rarest <= SLOPPY_DOCUMENTS:
                    sloppy = Query.phrase_query(schema, place, words, PROXIMITY_SLOP)
                    options.append(Query.const_score_query(sloppy, float(weight)))
            # (possible continuations are sampled from the whole index)
            if right.prefix and go_on and not self.narrowing:
                options.append(Query.const_score_query(Query.phrase_prefix_query(schema, place, words), float(2 * weight)))
        return options

    def _matching(self, unit: Unit, *, is_alone: bool = False) -> Query:
        """The most tolerant form of the unit, and its synonyms.

        What a word may go on to holds the word itself, which is left out where it stands alone (beside others it helps).
        """
        is_within = is_alone and unit.prefix and unit.word is not None and not unit.others
        options = [] if is_within else [self._exact(unit)]
        if unit.prefix:
            options.append(self._prefixed(unit))
        if unit.typos:
            options.append(self._misspelt(unit, unit.typos))
        return any_of(options)

    def _exact(self, unit: Unit) -> Query:
        runs = (unit.words, *unit.others)
        joined = () if unit.quoted or unit.word is not None else (("".join(unit.words),),)
        return any_of([self._run(field, run) for run in (*runs, *joined) for field in self._fields(run)])

    def _run(self, field: str, words: tuple[str, ...]) -> Query:
        if len(words) == 1:
            return Query.term_query(self.snapshot.schema, field, words[0], "basic")
        return Query.phrase_query(self.snapshot.schema, field, list(words))

    def _prefixed(self, unit: Unit) -> Query:
        """The last word is a prefix; in a phrase, the other words are adjacent and the last is in the same attribute."""
        if unit.word is not None:
            return any_of([self._fuzzy(field, unit.word, 0, prefix=True) for field in self._fields(unit.words)])
        options: list[Query] = []
        for name in self.attributes:
            head = self._run(f"t.{name}", unit.words[:-1])
            tail = self._fuzzy(f"t.{name}", unit.words[-1], 0, prefix=True)
            options.append(Query.boolean_query([(Occur.Must, head), (Occur.Must, tail)]))
        return any_of(options)

    def _misspelt(self, unit: Unit, typos: int) -> Query:
        assert unit.word is not None
        if self.no_typos_on:
            fields = [f"t.{name}" for name in self.attributes if name not in self.no_typos_on]
        else:
            fields = self._fields(unit.words)
        return any_of([self._fuzzy(field, unit.word, typos, prefix=unit.prefix) for field in fields])

    def _typos(self, unit: Unit) -> int:
        """The number of typos to search for, depending on how often the word occurs as typed."""
        if not unit.typos or self.degraded:
            return 0
        if self._frequency(unit) >= ENOUGH_FOR_NO_TYPO:
            return 0
        if unit.prefix and self._count(self._prefixed(unit)) >= ENOUGH_FOR_NO_TYPO:
            return 0
        if unit.typos == 2 and self._count(self._misspelt(unit, 1)) >= ENOUGH_FOR_ONE_TYPO:
            return 1
        return unit.typos

    def _fields(self, words: tuple[str, ...]) -> list[str]:
        if len(words) == 1 and not self.restricted:
            return ["w", *(f"t.{name}" for name in self.snapshot.attributes.long if name in self.attributes)]
        return [f"t.{name}" for name in self.attributes]

    def _fuzzy(self, field: str, word: str, distance: int, *, prefix: bool) -> Query:
        return Query.fuzzy_term_query(self.snapshot.schema, field, word, distance, True, prefix)

    def _frequency(self, unit: Unit, at_least: int = ENOUGH_FOR_NO_TYPO) -> int:
        """The number of documents with the unit. For a single word, the term dictionaries give an estimate at no cost.

        It ignores filters, so it is never too low; the exact number is only computed above `at_least`.
        """
        if unit.word is None:
            return self._count(self._exact(unit))
        most = max((self._documents(place, unit.word) for place in self._fields(unit.words)), default=0)
        if not self.narrowing or most < at_least:
            return most
        found = self._frequencies.get(unit)
        if found is None:
            found = self._frequencies[unit] = self._count(self._exact(unit))
        return found

    def _count(self, query: Query) -> int:
        if self.narrowing:
            query = Query.boolean_query([(Occur.Must, one) for one in (query, *self.narrowing)])
        return self.snapshot.count(query)

    def _documents(self, place: str, word: str) -> int:
        """The number of documents with the word in this field, by its term dictionaries."""
        found = self._counts.get((place, word))
        if found is None:
            found = self._counts[place, word] = self.snapshot.searcher.doc_freq(place, word)
        return found

    def _may_have(self, place: str, words: tuple[str, ...]) -> bool:
        return all(self._documents(place, word) for word in words)


def any_of(queries: list[Query]) -> Query:
    if not queries:
        return Query.empty_query()
    return queries[0] if len(queries) == 1 else Query.boolean_query([(Occur.Should, query) for query in queries])


def _without(query: Query, negatives: list[Query]) -> Query:
    if not negatives:
        return query
    return Query.boolean_query([(Occur.Must, query), *((Occur.MustNot, negative) for negative in negatives)])
