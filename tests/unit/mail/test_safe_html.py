"""What is left of hostile HTML."""

import time

import pytest

from archiver.mail.text.safe_html import safe_html

GONE = {
    "script": "<p>x</p><script>alert(1)</script>",
    "event": "<p onclick=alert(1)>x</p><img src=x onerror=alert(1)>",
    "javascript link": '<a href="javascript:alert(1)">x</a>',
    "spaced javascript link": '<a href=" java\tscript:alert(1)">x</a>',
    "data link": '<a href="data:text/html,<script>alert(1)</script>">x</a>',
    "form": '<form action="https://evil.example/"><input name=password><button>alert</button></form>',
    "frame": '<iframe src="https://evil.example/"></iframe>',
    "object": '<object data="https://evil.example/x.swf"></object><embed src="https://evil.example/x">',
    "svg": "<svg><script>alert(1)</script><a xlink:href='javascript:alert(1)'>x</a></svg>",
    "style sheet": "<style>@import url(https://evil.example/x.css);</style>",
    "meta": '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    "base": '<base href="https://evil.example/">',
    "css url": '<p style="background:url(https://evil.example/x.png)">x</p>',
    "css url in an allowed property": '<p style="width:url(https://evil.example/x.png)">x</p>',
    "css escapes": '<p style="color:\\75rl(https://evil.example/)">x</p>',
    "overlay": '<div style="position:fixed;top:0;z-index:9">alert</div>',
    "image": '<img src="https://evil.example/pixel.gif"><img src="//evil.example/pixel.gif">',
    "srcset": '<img srcset="https://evil.example/x 2x">',
    "background": '<table background="https://evil.example/x.png"><tr><td>x</td></tr></table>',
    "svg image": '<img src="data:image/svg+xml;base64,PHN2Zz4=">',
    "comment": "<!--[if mso]><img src='https://evil.example/x'><![endif]-->",
    "mutation": "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
}


@pytest.mark.parametrize("html", GONE.values(), ids=GONE.keys())
def test_nothing_runs_and_nothing_is_loaded(html: str) -> None:
    clean = safe_html(html).html
    for trace in (
        "alert(1)",
        "evil.example",
        "javascript:",
        "<script",
        "<form",
        "<iframe",
        "position",
        "url(",
        "svg+xml",
        "onerror=",
    ):
        assert trace not in clean


def test_remote_content_is_counted() -> None:
    safe = safe_html(
        '<body background="http://r/1"><img src="http://r/2"><img src="cid:a"><p style="background:url(http://r/3)">x</p></body>'
    )
    assert safe.blocked_remote == 3


def test_images_of_the_mail_are_resolved() -> None:
    safe = safe_html('<img src="cid:a@b"><img src="cid:lost">', lambda cid: f"/parts/{cid}" if cid == "a@b" else None)
    assert 'src="/parts/a@b"' in safe.html
    assert safe.unresolved_cids == ("lost",)


def test_link_targets_are_exposed() -> None:
    safe = safe_html('<a href="https://real.example/x">https://bank.example</a><a href="mailto:a@example.org">m</a>')
    assert safe.links == ("https://real.example/x", "mailto:a@example.org")
    assert 'rel="noopener noreferrer nofollow"' in safe.html


def test_what_is_harmless_stays() -> None:
    html = '<p style="color:red">Hello <b>you</b></p><table border="1"><tr><td colspan="2">x</td></tr></table>'
    clean = safe_html(html).html
    for kept in ('style="color:red"', "<b>you</b>", 'colspan="2"', 'border="1"'):
        assert kept in clean


def test_deep_nesting_costs_little() -> None:
    started = time.process_time()
    safe_html("<div>" * 200_000 + "words")
    assert time.process_time() - started < 4
