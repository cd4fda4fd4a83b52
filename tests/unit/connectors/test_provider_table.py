"""The table of providers in the documentation is that of the code."""

from __future__ import annotations

from pathlib import Path

from connectors.imap.provider_table import provider_table
from connectors.imap.providers import PROVIDERS, provider_of
from connectors.kinds import KINDS

DOCUMENT = Path(__file__).parents[3] / "docs/sources/imap.md"


def test_the_documented_table_is_the_one_in_the_code() -> None:
    shown = DOCUMENT.read_text().partition("<!-- providers -->\n")[2].partition("<!-- end -->\n")[0]
    assert shown == provider_table(), "run scripts/provider-table"


def test_a_host_counts_more_than_what_the_server_says() -> None:
    found = provider_of("IMAP.Gmail.com", "* OK Dovecot ready.")
    assert found is not None
    assert found.name == "Gmail"
    assert provider_of("mail.example.org", "* OK ready") is None
    assert provider_of("imap.gmail.com.evil.example", "") is None


def test_rows_do_not_shadow_each_other() -> None:
    for row in PROVIDERS:
        for host in row.hosts:
            found = provider_of(host.replace("*", "x"))
            assert found is row


def test_the_form_has_the_hints() -> None:
    assert dict(KINDS["imap"].guide) == {row.name: row.hint for row in PROVIDERS if row.hint}
