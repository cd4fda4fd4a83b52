"""Text from HTML."""

import time

from hypothesis import given
from hypothesis import strategies as st

from archiver.mail.defects import Defects
from archiver.mail.text.html_text import html_to_text
from archiver.mail.text.marks import Mark
from archiver.mail.text.tag_soup import soup_to_text


def text(html: str) -> str:
    return html_to_text(html, Defects()).text


def test_words_stay_whole_and_cells_apart() -> None:
    assert "unbelievable" in text("<p>un<b>believ</b>able</p>")
    assert text("<table><tr><td>a</td><td>b</td></tr><TR><TH>c</TH><TH>d</TH></TR></table>").split() == ["a", "b", "c", "d"]


def test_links_and_alternative_texts_are_kept() -> None:
    found = text('<a href="https://example.org/page">here</a> <img src=x alt="a chart">')
    assert "https://example.org/page" in found
    assert "a chart" in found


def test_scripts_and_styles_are_not_text() -> None:
    assert text("<style>p{color:red}</style><script>var a</script><!-- note --><p>words</p>") == "words"


def test_marks_are_where_they_should_be() -> None:
    html = (
        '<p>new</p><span style="visibility: hidden">hid</span><div class="gmail_quote">old <blockquote>older</blockquote></div>'
        '<div class="gmail_signature">Ann</div>'
    )
    marked = html_to_text(html, Defects())
    found = {(span.mark, marked.text[span.start : span.end].strip()) for span in marked.spans}
    assert (Mark.HIDDEN, "hid") in found
    assert (Mark.QUOTE, "older") in found
    assert (Mark.SIGNATURE, "Ann") in found
    assert any(mark is Mark.QUOTE and quoted.startswith("old") for mark, quoted in found)
    assert "\x1a" not in marked.text


def test_a_style_sheet_that_hides_does_not_hide_the_text_after_it() -> None:
    marked = html_to_text("<style>.x{display:none}</style><p>seen</p>", Defects())
    assert (marked.text, marked.spans) == ("seen", ())


def test_one_megabyte_of_nested_tags() -> None:
    started = time.process_time()
    assert "words" in text("<div>" * 200_000 + "words")
    assert "words" in text("<div>" * 2_500 + "words" + "</div>" * 2_500)
    assert time.process_time() - started < 4


def test_tag_soup_reads_like_the_parser() -> None:
    html = '<p>one <b>two</b></p><table><tr><td>a</td><td>b</td></table><style>x</style><a href="http://x/">l</a> &amp; &auml;'
    assert soup_to_text(html).split() == ["one", "two", "a", "b", "(http://x/)", "l", "&", "ä"]


TAGS = st.sampled_from(
    ["<p>", "</p>", "<div style='display:none'>", "</div>", "<b>", "<td>", "<!--", "-->", "<", ">", "x ", "&", "ä", "\x1a"]
)


@given(st.lists(TAGS, max_size=60).map("".join))
def test_never_raises(html: str) -> None:
    marked = html_to_text(html, Defects())
    assert all(0 <= span.start < span.end <= len(marked.text) for span in marked.spans)


def test_choices_of_forms_and_what_is_shown_without_frames_are_text() -> None:
    choices = "<select><option>Alabama<option value=2>Alaska</option></select>"
    form = text(f"<p>Where?</p><form>{choices}<input value='Send it'><textarea>notes</textarea></form>")
    assert set(form.split()) >= {"Where?", "Alabama", "Alaska", "notes"}
    assert "Send it" in form
    frames = "<html><FRAMESET><frame src=x><noframes><body>Your browser has no frames</body></noframes></FRAMESET></html>"
    assert "no frames" in text(frames)
