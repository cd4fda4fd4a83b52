"""The path of a mail, as servers write it, and as nobody should."""

from __future__ import annotations

import pytest

from archiver.mail.header.route import Hop, parse_hop, parse_results, read_route, split_comments

GOOGLE = (
    "from mail-wr1-f41.example.com (mail-wr1-f41.example.com [192.0.2.41]) by mx.example.org (Postfix (nested)) with ESMTPS"
    " id 4Q for <ann@example.org>; Mon, 3 Aug 2026 10:11:12 +0200 (CEST)"
)


def test_a_hop_as_most_servers_write_it() -> None:
    assert parse_hop(GOOGLE) == Hop(
        "mail-wr1-f41.example.com", "192.0.2.41", "mx.example.org", "ESMTPS", "2026-08-03T08:11:12+00:00", is_encrypted=True
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("by 2002:a05:b0::1 with SMTP id x; Tue, 3 Feb 2026 00:00:01 -0800", ("", "2002:a05:b0::1", "SMTP", False)),
        ("from localhost by localhost with LMTP", ("localhost", "localhost", "LMTP", False)),
        ("from a by b with HTTPS; rubbish", ("a", "b", "HTTPS", True)),
        ("from a (using TLSv1.3 with cipher X) by b with ESMTP", ("a", "b", "ESMTP", False)),
        ("(unclosed from a by b", ("", "", "", False)),
        ("from from by by", ("from", "by", "", False)),
        ("", ("", "", "", False)),
        (";;;;", ("", "", "", False)),
    ],
)
def test_other_ways_to_write_it(value: str, expected: tuple[str, str, str, bool]) -> None:
    hop = parse_hop(value)
    assert (hop.sender, hop.receiver, hop.protocol, hop.is_encrypted) == expected


def test_the_way_begins_where_the_header_ends() -> None:
    assert [hop.receiver for hop in read_route(["from b by c", "from a by b"])] == ["b", "c"]
    assert len(read_route(["from a by b"] * 10_000)) == 100


def test_results_of_checks() -> None:
    value = (
        "mx.example.org; dkim=pass (2048-bit; good) header.i=@example.com header.s=a; SPF=SoftFail smtp.mailfrom=x@example.com;"
        " dmarc=fail (p=NONE) header.from=example.com; none; =; ;"
    )
    found = parse_results(value)
    assert [(one.method, one.result) for one in found] == [("dkim", "pass"), ("spf", "softfail"), ("dmarc", "fail"), ("", "")]
    assert {one.server for one in found} == {"mx.example.org"}
    assert found[0].detail == "header.i=@example.com header.s=a"
    assert parse_results("") == parse_results(";;;") == ()


def test_comments_may_be_nested_or_never_close() -> None:
    assert split_comments("a (b (c) d) e")[0].split() == ["a", "e"]
    assert split_comments("a) b")[0].split() == ["a", "b"]
    assert split_comments("a (b")[0].split() == ["a"]
