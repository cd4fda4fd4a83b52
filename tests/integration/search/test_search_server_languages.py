"""Words of many scripts, addresses and codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from meilisearch.index import Index

TEXTS = {
    1: "Die Straße nach Zürich ist wegen Überflutung gesperrt",
    2: "IŞIK hızı ve İstanbul Boğazı",
    3: "東京都庁で会議があります。資料はメールで送ります",
    4: "我们明天在北京开会，请准备发票",
    5: "مُحَمَّد أرسل الفاتورة إلى المدرسة",
    6: "Заявка на поставку ёлок",
    7: "회의는 내일 서울에서 열립니다",
    8: "ประชุมพรุ่งนี้ที่กรุงเทพ",
    9: "Contact Alice.Smith+news@Example.org about INV-2024-00017, order 4711/12",
    10: "Œuvre naïve, façade, smørrebrød, Łódź",
    11: "बैठक कल दिल्ली में है",
    12: "ה\u05b8פגישה מחר בתל אביב",
    13: "donaudampfschifffahrtsgesellschaft",
    14: "Καλημέρα Αθήνα",
}

FOUND: list[tuple[str, set[int]]] = [
    ("strasse", {1}),
    ("STRASSE", {1}),
    ("zurich", {1}),
    ("überflutung", {1}),
    ("ueberflutung", set()),
    ("işık", {2}),
    ("ISIK", {2}),
    ("istanbul", {2}),
    ("İSTANBUL", {2}),
    ("東京", {3}),
    ("京都", {3}),
    ("会議", {3}),
    ("議会", set()),
    ("メール", {3}),
    ("北京", {4}),
    ("发票", {4}),
    ("京北", set()),
    ("محمد", {5}),
    ("احمد", set()),
    ("المدرسه", {5}),
    ("заявка", {6}),
    ("елок", {6}),
    ("내일", {7}),
    ("กรุงเทพ", {8}),
    ("พรุ่งนี้", {8}),
    ("alice", {9}),
    ("example.org", {9}),
    ("smith+news@example.org", {9}),
    ("alice.smith+news@example.org", {9}),
    ("inv-2024-00017", {9}),
    ("2024-00017", {9}),
    ("INV-2024-000", {9}),
    ("4711/12", {9}),
    ("4711", {9}),
    ("00018-2024", set()),
    ("oeuvre", {10}),
    ("naive facade", {10}),
    ("smorrebrod", {10}),
    ("lodz", {10}),
    ("दिल्ली", {11}),
    ("הפגישה", {12}),
    ("donaudampf", {13}),
    ("αθηνα", {14}),
]


@pytest.fixture
def letters(make_index: Callable[..., Index]) -> Index:
    return make_index([{"id": number, "text": text} for number, text in TEXTS.items()], {"typoTolerance": {"enabled": False}})


@pytest.mark.usefixtures("embedded_only")
def test_each_is_found_and_nothing_else(letters: Index) -> None:
    wrong: list[Any] = []
    for query, expected in FOUND:
        found = {hit["id"] for hit in letters.search(query, {"matchingStrategy": "all"})["hits"]}
        if found != expected:
            wrong.append((query, found, expected))
    assert wrong == []


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("strasse", "<em>Straße</em>"),
        ("東京", "<em>東京</em>都庁"),
        ("محمد", "<em>مُحَمَّد</em>"),
        ("oeuvre", "<em>Œuvre</em>"),
        ("isik", "<em>IŞIK</em>"),
        ("example.org", "<em>Example.org</em>"),
        ("zuri", "<em>Züri</em>ch"),
        ("दिल्ली", "<em>दिल्ली</em>"),
    ],
)
def test_marks_stand_where_the_words_are(letters: Index, query: str, marked: str) -> None:
    hit = letters.search(query, {"attributesToHighlight": ["text"]})["hits"][0]
    assert marked in hit["_formatted"]["text"]
    assert hit["_formatted"]["text"].replace("<em>", "").replace("</em>", "") == hit["text"]


def test_positions_count_bytes(letters: Index) -> None:
    hit = letters.search("zurich", {"showMatchesPosition": True})["hits"][0]
    spot = hit["_matchesPosition"]["text"][0]
    assert hit["text"].encode()[spot["start"] : spot["start"] + spot["length"]].decode() == "Zürich"
