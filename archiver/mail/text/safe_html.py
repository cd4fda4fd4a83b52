"""Makes the HTML of mail safe to display. The page must still use a sandboxed frame and a content security policy."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import nh3

from archiver.mail import limits
from archiver.mail.text.nesting import cap_nesting

_TAGS = {
    "a", "abbr", "address", "b", "bdi", "bdo", "big", "blockquote", "br", "caption", "center", "cite", "code", "col",
    "colgroup", "dd", "del", "dfn", "div", "dl", "dt", "em", "figcaption", "figure", "font", "h1", "h2", "h3", "h4", "h5",
    "h6", "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "u", "ul", "var", "wbr",
    "section", "article", "header", "footer",
}  # fmt: skip
_WITH_CONTENT = {
    "script",
    "style",
    "title",
    "head",
    "object",
    "embed",
    "applet",
    "noscript",
    "template",
    "svg",
    "math",
    "iframe",
    "xml",
}
_ATTRIBUTES = {
    "*": {"style", "dir", "lang", "title", "align", "valign", "bgcolor", "width", "height"},
    "a": {"href"},
    "img": {"src", "alt", "border"},
    "font": {"color", "face", "size"},
    "table": {"border", "cellpadding", "cellspacing"},
    "td": {"colspan", "rowspan", "nowrap"},
    "th": {"colspan", "rowspan", "scope", "nowrap"},
    "ol": {"start", "type"},
    "ul": {"type"},
    "col": {"span"},
    "colgroup": {"span"},
}
_STYLES = {
    "background-color", "border", "border-bottom", "border-collapse", "border-color", "border-left", "border-radius",
    "border-right", "border-spacing", "border-style", "border-top", "border-width", "color", "direction", "display",
    "font", "font-family", "font-size", "font-style", "font-weight", "height", "letter-spacing", "line-height",
    "list-style-type", "margin", "margin-bottom", "margin-left", "margin-right", "margin-top", "max-width", "min-width",
    "padding", "padding-bottom", "padding-left", "padding-right", "padding-top", "text-align", "text-decoration",
    "text-indent", "text-transform", "unicode-bidi", "vertical-align", "white-space", "width", "word-break", "word-wrap",
}  # fmt: skip
_FETCHES = re.compile(r"(?i)url\s*\(|image\s*\(|image-set\s*\(|expression\s*\(|@import|\\")
_URL = re.compile(r"(?i)url\s*+\(\s*+['\"]?\s*+(https?:|//)")
_SAFE_IMAGE = re.compile(r"(?i)data:image/(?:png|jpe?g|gif|webp);base64,[a-z0-9+/=\s]*\Z")
_LINK_SCHEMES = {"http", "https", "mailto", "tel", "ftp", "news", "xmpp", "sip", "geo", "cid"}
_BACKGROUND = re.compile(r"(?i)\sbackground\s*+=\s*+[\"']?\s*+(?:https?:|//)")

ResolveCid = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class SafeHtml:
    """HTML that loads nothing from other servers and runs no scripts, and what was removed from it."""

    html: str
    blocked_remote: int  # images, backgrounds and fonts whose loading would tell the sender that the mail was opened
    links: tuple[str, ...]  # the real targets of links, each once
    unresolved_cids: tuple[str, ...]


class _Filter:
    """Filters attributes one by one, and counts what it removes."""

    def __init__(self, resolve_cid: ResolveCid, *, keep_remote: bool) -> None:
        self._resolve_cid = resolve_cid
        self._keep_remote = keep_remote
        self.blocked = 0
        self.links: dict[str, None] = {}
        self.unresolved: dict[str, None] = {}

    def __call__(self, tag: str, attribute: str, value: str) -> str | None:
        if attribute == "style":
            return self._style(value)
        if tag == "img" and attribute == "src":
            return self._image(value.strip())
        if tag == "a" and attribute == "href":
            return self._link(value.strip())
        return value

    def _style(self, value: str) -> str | None:
        if _FETCHES.search(value) is None:
            return value
        self.blocked += len(_URL.findall(value))
        kept = [declaration for declaration in value.split(";") if _FETCHES.search(declaration) is None]
        return ";".join(kept) or None

    def _image(self, value: str) -> str | None:
        scheme = value.partition(":")[0].lower()
        if scheme == "cid":
            resolved = self._resolve_cid(value[4:].strip("<> "))
            if resolved is None:
                self.unresolved[value[4:]] = None
            return resolved
        if scheme == "data":
            return value if _SAFE_IMAGE.match(value) else None
        if self._keep_remote and scheme in ("http", "https"):
            return value
        self.blocked += 1
        return None

    def _link(self, value: str) -> str | None:
        try:
            scheme = urlsplit(value).scheme.lower()
        except ValueError:
            return None
        if scheme not in _LINK_SCHEMES:
            return None
        if len(self.links) < limits.SPANS:
            self.links[value] = None
        return value


def safe_html(html: str, resolve_cid: ResolveCid = lambda _: None, *, keep_remote: bool = False) -> SafeHtml:
    """Cleans HTML for display. `resolve_cid` returns the URL of the image with a Content-ID.

    `keep_remote` keeps images from other servers, if the reader requested them.
    """
    html = html[: limits.HTML_BYTES].replace("\0", "")
    html = cap_nesting(html, html.count("<"))
    decide = _Filter(resolve_cid, keep_remote=keep_remote)
    cleaned = nh3.clean(
        html,
        tags=_TAGS,
        clean_content_tags=_WITH_CONTENT,
        attributes=_ATTRIBUTES,
        attribute_filter=decide,
        strip_comments=True,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes=_LINK_SCHEMES | {"data"},
        filter_style_properties=_STYLES,
    )
    blocked = decide.blocked + len(_BACKGROUND.findall(html))
    return SafeHtml(cleaned, blocked, tuple(decide.links), tuple(decide.unresolved))
