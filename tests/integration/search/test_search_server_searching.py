"""Searching with the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meilisearch
import pytest
from meilisearch.errors import MeilisearchApiError
from meilisearch.index import Index
from meilisearch.models.index import PrefixSearch

from tests.integration.search.search_process import finished


def found(index: Index, query: str | None, **parameters: Any) -> list[Any]:
    return [hit["id"] for hit in index.search(query, parameters)["hits"]]


def test_nothing_asked_gives_all_in_order(movies: Index) -> None:
    answer = movies.search("")
    assert [hit["id"] for hit in answer["hits"]] == [1, 2, 3, 4, 5, 6]
    assert (answer["query"], answer["limit"], answer["offset"], answer["estimatedTotalHits"]) == ("", 20, 0, 6)
    assert "_formatted" not in answer["hits"][0]


def test_the_last_word_is_a_prefix_unless_it_is_finished(movies: Index) -> None:
    assert found(movies, "wond") == [2]
    assert found(movies, "wond ") == []
    assert found(movies, "wond woman", matchingStrategy="all") == []


@pytest.mark.usefixtures("embedded_only")
def test_typos_by_the_length_of_the_word(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    texts = ["invoice", "invioce", "invoize", "philadelphia", "philadelfia", "filadelfia", "road", "raod"]
    index = make_index([{"id": number, "text": text} for number, text in enumerate(texts)])
    assert found(index, "invoice ")[0] == 0
    assert set(found(index, "invoice ")) == {0, 1, 2}
    assert set(found(index, "philadelphia ")) == {3, 4}
    assert found(index, "road ") == [6]
    finished(client, index.update_typo_tolerance({"minWordSizeForTypos": {"oneTypo": 4}}))
    assert set(found(index, "road ")) == {6, 7}
    finished(client, index.update_typo_tolerance({"disableOnWords": ["invoice"]}))
    assert found(index, "invoice ") == [0]
    finished(client, index.update_typo_tolerance({"enabled": False}))
    assert found(index, "philadelphia ") == [3]


def test_typos_can_be_off_for_an_attribute(make_index: Callable[..., Index]) -> None:
    documents = [{"id": 1, "code": "invoice"}, {"id": 2, "text": "invoice"}]
    index = make_index(documents, {"typoTolerance": {"disableOnAttributes": ["code"]}})
    assert found(index, "invoize ") == [2]


def test_phrases_and_negations(movies: Index) -> None:
    assert found(movies, '"fury road"') == [4]
    assert found(movies, '"road fury"') == []
    assert found(movies, '"fur"') == []
    assert found(movies, "sea -tiger") == [5]
    assert found(movies, 'sea -"a tiger"') == [5]
    assert found(movies, "-sea") == [1, 2, 4, 6]


def test_matching_strategies(make_index: Callable[..., Index]) -> None:
    texts = ["red green blue", "red green", "red", "green blue", "blue", "red blue blue"]
    index = make_index(
        [{"id": number, "text": text} for number, text in enumerate(texts)], {"typoTolerance": {"enabled": False}}
    )
    assert found(index, "red green blue", matchingStrategy="all") == [0]
    last = found(index, "red green blue")
    assert last[:2] == [0, 1]
    assert set(last) == {0, 1, 2, 5}
    rarest = found(index, "green red blue", matchingStrategy="frequency")
    assert rarest[0] == 0
    assert set(rarest) == {0, 1, 3}, "the rarest word stays"


def test_attributes_to_search_on(movies: Index) -> None:
    assert found(movies, "road") == [4]
    assert found(movies, "road", attributesToSearchOn=["plot"]) == [4]
    assert found(movies, "fury", attributesToSearchOn=["plot"]) == []
    assert found(movies, "woman", attributesToSearchOn=["title"]) == [2]


def test_ranking_rules_in_their_order(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    documents = [
        {"id": 1, "title": "other", "text": "alpha gamma gamma gamma gamma gamma gamma beta"},
        {"id": 2, "title": "other", "text": "alpha beta"},
        {"id": 3, "title": "alpha beta", "text": "other"},
        {"id": 4, "title": "other", "text": "alpha"},
        {"id": 5, "title": "other", "text": "alphq beta"},
    ]
    index = make_index(documents, {"searchableAttributes": ["title", "text"]})
    assert found(index, "alpha beta ") == [3, 2, 1, 5, 4], "words, then typos, then proximity, then attribute"
    finished(client, index.update_ranking_rules(["attribute", "words", "typo", "proximity"]))
    assert found(index, "alpha beta ")[0] == 3
    exact = make_index([{"id": 1, "text": "calendars"}, {"id": 2, "text": "calendar"}])
    assert found(exact, "calendar") == [2, 1]


def test_words_near_the_beginning_of_an_attribute_come_first(
    make_index: Callable[..., Index], client: meilisearch.Client
) -> None:
    documents = [
        {"id": 1, "title": "other", "text": "one two three four five six harbour", "age": 3},
        {"id": 2, "title": "other", "text": "harbour one two three four five six", "age": 1},
        {"id": 3, "title": "one two three four five six harbour", "text": "other", "age": 2},
    ]
    index = make_index(documents, {"searchableAttributes": ["title", "text"], "sortableAttributes": ["age"]})
    assert found(index, "harbour ") == [3, 2, 1], "the attribute counts before the position in it"
    assert found(index, "harbour ", sort=["age:desc"]) == [3, 1, 2], "sort stands between the two"
    finished(client, index.update_ranking_rules(["words", "wordPosition"]))
    assert found(index, "harbour ")[0] == 2
    finished(client, index.update_ranking_rules(["words", "attributeRank"]))
    assert found(index, "harbour ") == [3, 1, 2]
    finished(client, index.update_ranking_rules(["words", "attribute"]))
    assert found(index, "harbour ") == [3, 2, 1], "the old rule is both of them"
    finished(client, index.update_ranking_rules(None))
    assert index.get_ranking_rules() == ["words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"]


def test_words_count_before_all_that_looks_at_single_words(make_index: Callable[..., Index]) -> None:
    documents = [{"id": 1, "text": "alpha beta gamma"}, {"id": 2, "text": "alpha"}]
    for rules in (["exactness", "words"], ["typo"], ["attribute", "proximity"]):
        assert found(make_index(documents, {"rankingRules": rules}), "alpha beta ")[0] == 1, rules


def test_weak_matches_have_low_scores(make_index: Callable[..., Index]) -> None:
    documents = [
        {"id": 1, "title": "storm over the harbour", "text": "nothing"},
        {"id": 2, "title": "nothing", "text": "a long sentence in which the harbour is named late, after so many other words"},
        {"id": 3, "title": "harvour", "text": "nothing"},
        {"id": 4, "title": "nothing", "text": "storm"},
    ]
    index = make_index(documents, {"searchableAttributes": ["title", "text"], "sortableAttributes": ["id"]})

    def above(query: str, threshold: float, **more: Any) -> list[Any]:
        return found(index, query, rankingScoreThreshold=threshold, **more)

    assert above("storm over the harbour", 0.9) == [1]
    assert above("storm over the harbour", 0.3) == [1], "one word of four is worth a quarter at most"
    assert above("storm over the harbour", 0.0) == [1, 4]
    assert above("harbour ", 0.5) == [1, 2]
    assert above("harbour ", 0.0) == [1, 2, 3]
    assert above("harbour ", 0.5, sort=["id:desc"]) == [1, 2]
    scores = [hit["_rankingScore"] for hit in index.search("harbour ", {"showRankingScore": True})["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[2] < 0.5 < scores[1] < scores[0] < 1


def test_scores_are_known_where_a_key_decides(make_index: Callable[..., Index]) -> None:
    documents = [{"id": 1, "text": "harbour"}, {"id": 2, "text": "harvour"}]
    index = make_index(documents, {"sortableAttributes": ["id"], "rankingRules": ["sort", "words", "typo"]})
    hits = index.search("harbour ", {"sort": ["id:desc"], "showRankingScore": True})["hits"]
    assert [(hit["id"], hit["_rankingScore"]) for hit in hits] == [(2, 0.5), (1, 1.0)]
    assert found(index, "harbour ", sort=["id:desc"], rankingScoreThreshold=0.9) == [1]


def test_distinct_keeps_the_best_and_of_equals_the_first(make_index: Callable[..., Index]) -> None:
    texts = ["late harbour", "harbour", "harbour", "late harbour", "harbour"]
    documents = [{"id": number, "text": text, "kind": "ab"[number > 2]} for number, text in enumerate(texts)]
    documents += [{"id": 10 + number, "text": "other harbour", "kind": f"k{number % 40}"} for number in range(2000)]
    index = make_index(documents, {"filterableAttributes": ["kind"]})
    assert found(index, "harbour ", distinct="kind", limit=2) == [1, 4]
    assert found(index, "harbour ", distinct="kind", offset=2, limit=50) == list(range(10, 50))


def test_sorting(movies: Index, client: meilisearch.Client) -> None:
    assert found(movies, "", sort=["year:asc"]) == [6, 3, 1, 4, 5, 2]
    assert found(movies, "", sort=["year:desc", "rating:asc"]) == [2, 5, 1, 4, 3, 6]
    assert found(movies, "", sort=["title:desc"], limit=2) == [2, 6]
    assert found(movies, "", sort=["year:asc"], offset=2, limit=2) == [1, 4]
    assert found(movies, "a", sort=["year:desc"])[0] in (2, 5)
    finished(client, movies.update_ranking_rules(["sort", "words"]))
    assert found(movies, "home", sort=["year:asc"]) == [5, 2]


@pytest.mark.usefixtures("embedded_only")
def test_sorting_puts_numbers_before_texts_before_nothing(make_index: Callable[..., Index]) -> None:
    values: list[Any] = ["b", 2, None, "a", 1, [5, 0], {}]
    index = make_index(
        [{"id": number, "v": value} for number, value in enumerate(values)] + [{"id": 9}], {"sortableAttributes": ["v"]}
    )
    assert found(index, "", sort=["v:asc"])[:5] == [5, 4, 1, 3, 0]
    assert found(index, "", sort=["v:desc"])[:5] == [5, 1, 4, 0, 3]
    assert set(found(index, "", sort=["v:asc"])[5:]) == {2, 6, 9}
    assert found(index, "", sort=["v:asc"], offset=3, limit=2) == [3, 0]


def test_sorting_reaches_every_page(make_index: Callable[..., Index]) -> None:
    sizes = [number * 7 % 5003 for number in range(3000)]
    documents = [{"id": number, "size": size, "text": "same"} for number, size in enumerate(sizes)]
    index = make_index(documents, {"sortableAttributes": ["size"]})
    for query in ("", "same"):
        answer = index.search(query, {"sort": ["size:desc"], "offset": 1500, "limit": 5, "attributesToRetrieve": ["size"]})
        assert [hit["size"] for hit in answer["hits"]] == sorted(sizes, reverse=True)[1500:1505]


@pytest.mark.usefixtures("embedded_only")
def test_equally_good_hits_are_in_the_order_of_the_last_rule_on_all_pages(make_index: Callable[..., Index]) -> None:
    documents = [
        {"id": number, "text": "as good" if number % 3 else "good as", "rank": number * 7919 % 3001} for number in range(3000)
    ]
    index = make_index(documents, {"rankingRules": ["words", "proximity", "rank:desc"], "filterableAttributes": ["rank"]})
    by_rank = sorted(documents, key=lambda one: (one["text"] != "as good", -int(str(one["rank"]))))
    for query, wanted in (("good", sorted(documents, key=lambda one: -int(str(one["rank"])))), ("as good ", by_rank)):
        ids = [one for page in range(1, 31) for one in found(index, query, page=page, hitsPerPage=100)]
        assert ids == [one["id"] for one in wanted]
    least = sorted((one for one in documents if int(str(one["rank"])) < 10), key=lambda one: -int(str(one["rank"])))
    assert found(index, "good", filter="rank < 10") == [one["id"] for one in least]


@pytest.mark.usefixtures("embedded_only")
def test_how_common_a_word_is_counts_among_what_the_filter_leaves(make_index: Callable[..., Index]) -> None:
    documents = [{"id": number, "text": "zebra", "group": "theirs"} for number in range(300)]
    documents += [{"id": 1000, "text": "zebra", "group": "ours"}, {"id": 1001, "text": "zebro", "group": "ours"}]
    index = make_index(documents, {"filterableAttributes": ["group"]})
    assert found(index, "zebra ", filter="group = ours") == [1000, 1001]
    assert index.search("zebra ", {"hitsPerPage": 1000})["totalHits"] == 301, "too common to be looked for with typos"


def test_custom_ranking_rules(make_index: Callable[..., Index]) -> None:
    documents = [{"id": number, "text": "word", "age": age} for number, age in enumerate([3, 1, 2])]
    index = make_index(documents, {"rankingRules": ["words", "age:asc"]})
    assert found(index, "word") == [1, 2, 0]
    assert found(index, "") == [1, 2, 0]


def test_facets(movies: Index, client: meilisearch.Client) -> None:
    answer = movies.search("", {"facets": ["genres", "year"], "filter": "year > 2000"})
    assert answer["facetDistribution"]["genres"] == {"action": 3, "Adventure": 3, "Drama": 2, "Fantasy": 1, "romance": 1}
    assert answer["facetDistribution"]["year"] == {"2012": 1, "2015": 2, "2016": 1, "2017": 1}
    assert answer["facetStats"] == {"year": {"min": 2012.0, "max": 2017.0}}
    finished(client, movies.update_faceting_settings({"maxValuesPerFacet": 2, "sortFacetValuesBy": {"genres": "count"}}))
    assert sum(movies.search("", {"facets": ["genres"]})["facetDistribution"]["genres"].values()) == 6
    everything = movies.search("", {"facets": ["*"]})["facetDistribution"]
    assert set(everything) == {"genres", "year", "rating", "note", "title"}


def test_facet_search(movies: Index) -> None:
    assert movies.facet_search("genres", "adv")["facetHits"] == [{"value": "Adventure", "count": 3}]
    assert movies.facet_search("genres", "advemture")["facetHits"] == [{"value": "Adventure", "count": 3}]
    assert movies.facet_search("genres", "drama", {"q": "tiger"})["facetHits"] == [{"value": "Drama", "count": 1}]
    assert len(movies.facet_search("genres")["facetHits"]) == 5


def test_pages_have_exact_totals(movies: Index) -> None:
    answer = movies.search("", {"page": 2, "hitsPerPage": 4})
    assert [hit["id"] for hit in answer["hits"]] == [5, 6]
    assert (answer["page"], answer["hitsPerPage"], answer["totalPages"], answer["totalHits"]) == (2, 4, 2, 6)
    assert "estimatedTotalHits" not in answer
    nothing = movies.search("", {"page": 0, "hitsPerPage": 0})
    assert (nothing["hits"], nothing["totalHits"], nothing["totalPages"]) == ([], 6, 0)


@pytest.mark.usefixtures("embedded_only")
def test_more_than_a_thousand_hits(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    index = make_index([{"id": number, "text": "same words"} for number in range(2500)])
    answer = index.search("same", {"offset": 2400, "limit": 1000})
    assert (len(answer["hits"]), answer["estimatedTotalHits"]) == (100, 2500)
    finished(client, index.update_pagination_settings({"maxTotalHits": 50}))
    limited = index.search("same", {"offset": 40, "limit": 1000})
    assert (len(limited["hits"]), limited["estimatedTotalHits"]) == (10, 50)


def test_distinct(movies: Index, client: meilisearch.Client) -> None:
    answer = movies.search("", {"distinct": "year"})
    assert [hit["id"] for hit in answer["hits"]] == [1, 2, 3, 5, 6]
    assert answer["estimatedTotalHits"] == 5
    finished(client, movies.update_distinct_attribute("genres"))
    assert found(movies, "") == [1, 2]


def test_highlight_crop_and_positions(movies: Index) -> None:
    hit = movies.search(
        "tig", {"attributesToHighlight": ["plot"], "attributesToRetrieve": ["id"], "showMatchesPosition": True}
    )["hits"][0]
    assert hit["_formatted"] == {"id": "3", "plot": "A boy and a <em>tig</em>er at sea."}
    assert hit["_matchesPosition"] == {"plot": [{"start": 12, "length": 3}]}
    assert "plot" not in hit
    cropped = movies.search(
        "tiger",
        {
            "attributesToCrop": ["plot:3"],
            "cropMarker": "[…]",
            "highlightPreTag": "<<",
            "highlightPostTag": ">>",
            "attributesToHighlight": ["*"],
        },
    )["hits"][0]["_formatted"]["plot"]
    assert cropped == "[…]a <<tiger>> at[…]"


@pytest.mark.usefixtures("embedded_only")
def test_scores(movies: Index) -> None:
    hits = movies.search("fury road", {"showRankingScore": True, "showRankingScoreDetails": True})["hits"]
    assert hits[0]["_rankingScore"] > 0.9
    assert hits[0]["_rankingScoreDetails"]["words"]["matchingWords"] == 2
    assert movies.search("", {"showRankingScore": True})["hits"][0]["_rankingScore"] == 1.0
    assert found(movies, "sea tiger", rankingScoreThreshold=0.8) == [3]
    assert movies.search("sea tiger", {"rankingScoreThreshold": 0.8})["estimatedTotalHits"] == 1


def test_displayed_attributes_hide_the_rest(movies: Index, client: meilisearch.Client) -> None:
    finished(client, movies.update_displayed_attributes(["title"]))
    assert movies.search("moana")["hits"] == [{"title": "Moana"}]


def test_stop_words_synonyms_and_separators(make_index: Callable[..., Index], client: meilisearch.Client) -> None:
    documents = [
        {"id": 1, "text": "the house"},
        {"id": 2, "text": "san francisco house"},
        {"id": 3, "text": "sf"},
        {"id": 4, "text": "a#b c|d"},
    ]
    index = make_index(documents, {"synonyms": {"sf": ["san francisco"], "san francisco": ["sf"], "home": ["house"]}})
    assert set(found(index, "sf ")) == {2, 3}
    assert set(found(index, "san francisco ")) == {2, 3}
    assert set(found(index, "home ")) == {1, 2}
    finished(client, index.update_stop_words(["the"]))
    assert set(found(index, "the house", matchingStrategy="all")) == {1, 2}
    assert found(index, "a ") == [4]
    finished(client, index.update_non_separator_tokens(["#"]))
    assert found(index, "a ") == []
    assert found(index, "a#b ") == [4]
    finished(client, index.update_dictionary(["c|d"]))
    assert found(index, "d ") == []
    assert found(index, '"c|d"') == [4]
    finished(client, index.update_separator_tokens(["ran"]))
    assert found(index, "cisco ") == [2]


def test_prefix_search_can_be_switched_off(movies: Index, client: meilisearch.Client) -> None:
    assert found(movies, "moan") == [5]
    finished(client, movies.update_prefix_search(PrefixSearch.DISABLED))
    assert found(movies, "phil") == []


def test_searching_by_get(movies: Index, client: meilisearch.Client) -> None:
    answer = client.http.get(
        f"indexes/{movies.uid}/search?q=sea&filter=year%20%3E%202015&facets=year&attributesToRetrieve=id,title"
    )
    assert answer["hits"] == [{"id": 5, "title": "Moana"}]
    assert answer["facetDistribution"] == {"year": {"2016": 1}}


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"filter": "year >"}, "invalid_search_filter"),
        ({"filter": "plot = x"}, "invalid_search_filter"),
        ({"filter": 5}, "invalid_search_filter"),
        ({"filter": "year = 1 AND (year = 2"}, "invalid_search_filter"),
        ({"sort": ["plot:asc"]}, "invalid_search_sort"),
        ({"sort": ["year"]}, "invalid_search_sort"),
        ({"facets": ["plot"]}, "invalid_search_facets"),
        ({"limit": -1}, "invalid_search_limit"),
        ({"limit": "x"}, "invalid_search_limit"),
        ({"matchingStrategy": "some"}, "invalid_search_matching_strategy"),
        ({"rankingScoreThreshold": 2}, "invalid_search_ranking_score_threshold"),
        ({"attributesToHighlight": "title"}, "invalid_search_attributes_to_highlight"),
        ({"distinct": "plot"}, "invalid_search_distinct"),
        ({"nonsense": 1}, "bad_request"),
    ],
)
def test_wrong_parameters(movies: Index, parameters: dict[str, Any], code: str) -> None:
    with pytest.raises(MeilisearchApiError) as caught:
        movies.search("x", parameters)
    assert (caught.value.code, caught.value.type, caught.value.status_code) == (code, "invalid_request", 400)
    assert caught.value.link is not None
