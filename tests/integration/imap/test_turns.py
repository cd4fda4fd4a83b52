"""Limits of the installation on IMAP: however small they are, each slice makes progress, and nothing is fetched twice."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from connectors.base import Quota
from connectors.errors import Throttled
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import PASSWORD, Dovecot, message


class StingyContext(QuietContext):
    """Each job may connect, and fetch this many groups of messages."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.left, self.paid = groups, 0.0

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), limit: int = 1) -> int:
        if cost > 1:
            if not self.left:
                raise Throttled("used up", 3)
            self.left -= 1
        self.paid += cost
        return limit


def _slice(server: Dovecot, user: str, held: Taken, groups: int) -> tuple[bool, float]:
    context = StingyContext(groups)
    settings = ImapSettings.model_validate(server.settings(user))
    connector = ImapConnector(settings, ImapSecrets.model_validate({"password": PASSWORD}), context)
    try:
        (box,) = connector.mailboxes()
        for batch in connector.fetch(box, json.loads(json.dumps(held.state)), nothing):
            held.store([batch])
        return True, context.paid
    except Throttled:
        return False, context.paid
    finally:
        connector.close()


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_each_slice_makes_progress(dovecot: Dovecot, groups: int) -> None:
    user, count = f"turns{groups}", 430
    dovecot.fill(user, "INBOX", [message(number, 300, user) for number in range(count)])
    held, paid, slices = Taken(), 0.0, 0
    for _ in range(20):
        before = len(held.given)
        ended, cost = _slice(dovecot, user, held, groups)
        paid, slices = paid + cost, slices + 1
        assert ended or len(held.given) > before, "a slice that was paid for brings something"
        if ended:
            break
    assert len(held.given) == len(set(held.given)) == count
    assert slices > 1
    assert paid <= count + 2 * slices, "a message is paid for once"
