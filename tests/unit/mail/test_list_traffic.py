"""Conversations of a generated list: weekly reports, patch series, subjects that everybody uses, replies that name nothing."""

from collections import Counter
from uuid import UUID

from archiver.mail.header.headers import read_headers
from archiver.mail.thread_groups import group_messages
from archiver.mail.threads import thread_keys
from benchmarks.list_traffic import ListTraffic, true_groups
from benchmarks.quality import listed


def pairs(size: int) -> int:
    return size * (size - 1) // 2


def test_conversations_of_a_list_are_told_apart() -> None:
    traffic = ListTraffic(weeks=15).mails()
    nameless = [mail for mail in traffic if b"Subject: Re:" in mail.raw and b"References:" not in mail.raw]
    assert len(nameless) > 100
    headers = [read_headers(mail.raw) for mail in traffic]
    mails = [listed(number, one) for number, one in enumerate(headers)]
    people = {UUID(int=number): thread_keys(one).correspondents for number, one in enumerate(headers)}
    found = [[one.int for one in group] for group in group_messages(mails, lambda ids: people)]
    truth = {place: number for number, places in enumerate(true_groups(traffic)) for place in places}
    sizes = Counter(truth.values())
    exact = sum(
        len(group)
        for group in found
        if {truth[one] for one in group} == {truth[group[0]]} and len(group) == sizes[truth[group[0]]]
    )
    right = sum(pairs(size) for group in found for size in Counter(truth[one] for one in group).values())
    assert exact / len(traffic) >= 0.98
    assert right / sum(pairs(len(group)) for group in found) >= 0.99
    assert right / sum(map(pairs, sizes.values())) >= 0.98
