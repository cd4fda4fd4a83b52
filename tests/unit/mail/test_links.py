"""Links that lie."""

from __future__ import annotations

import pytest

from archiver.mail.text.links import find_doubtful_links, judge_link

KNOWN = frozenset({"paypal.com", "lanternworks.example"})


@pytest.mark.parametrize(
    ("url", "shown", "reason"),
    [
        ("https://www.paypal.com/x", "www.paypal.com", ""),
        ("https://paypal.com/x", "Log in", ""),
        ("https://click.example.org/c", "example.org", ""),
        ("https://shop.example.co.uk/", "www.example.co.uk", ""),
        ("https://evil.example/login", "https://www.paypal.com/login", "other_host"),
        ("https://evil.example/login", "PAYPAL.COM", "other_host"),
        ("https://cdn.example/invoice", "invoice.pdf", ""),
        ("https://cdn.example/x", "Version 2.0 is here", ""),
        ("https://paypa1.com/", "here", "look_alike"),
        ("https://xn--pypal-4ve.com/", "here", "look_alike"),
        ("https://lanternvvorks.example/", "here", "look_alike"),
        ("https://paypal.com.evil.example/", "here", "look_alike"),
        ("https://xn--80ak6aa92e.example/", "here", "mixed_scripts"),
        ("https://xn--mnchen-3ya.example/", "here", "encoded"),
        ("https://paypal.com@evil.example/", "here", "user"),
        ("http://192.0.2.1/", "here", "address"),
        ("http://[2001:db8::1]/", "here", "address"),
        ("http://3221225985/", "here", "address"),
        ("http://[::1/", "here", ""),
        ("mailto:a@evil.example", "paypal.com", ""),
        ("https://", "x", ""),
        ("https://xn--\u00e4.example/", "here", ""),
    ],
)
def test_what_is_odd_about_a_link(url: str, shown: str, reason: str) -> None:
    found = judge_link(url, shown, KNOWN)
    assert (found.reason if found else "") == reason


def test_links_in_html_each_once() -> None:
    link = '<a title="a > b" href="https://evil.example/?a=1&amp;b=2" rel="x"><b>www.</b>paypal.com</a>'
    found = find_doubtful_links(f"<p>{link}{link}</p><a href='single'>no</a><a href=\"https://paypal.com\">ok</a>", KNOWN)
    assert [(one.url, one.host) for one in found] == [("https://evil.example/?a=1&b=2", "evil.example")]


@pytest.mark.parametrize("html", ["<a ", '<a href="', '<a href="x">', '<a href="https://1.1.1.1/">x</a', "<a >" * 1000])
def test_html_that_ends_in_the_middle(html: str) -> None:
    assert len(find_doubtful_links(html, KNOWN)) <= 1
