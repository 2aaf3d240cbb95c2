"""DuckDuckGo's plain HTML page as a search provider."""

import re
from collections.abc import Sequence
from html import unescape
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from vaka.core.ports.net import NetRequest, Network
from vaka.core.ports.web import Found
from vaka.core.types.content import clean
from vaka.core.types.errors import NetworkUnreachable, NotFound

ENDPOINT = "https://html.duckduckgo.com/html/"
SECONDS = 15.0
BYTES = 1024**2
_ANCHOR = re.compile(r"<(a|div|span)\b([^<>]{0,4000})>", re.IGNORECASE)
_CLASS = re.compile(r"""\bclass\s{0,9}=\s{0,9}["']([^"']{0,500})["']""", re.IGNORECASE)
_HREF = re.compile(r"""\bhref\s{0,9}=\s{0,9}["']([^"']{0,4000})["']""", re.IGNORECASE)
_TAGS = re.compile(r"<[^<>]{0,4000}>")
_TEXT = 4_000
"""Characters after a tag in which what it holds must end."""


class DuckDuckGo:
    """Asks the page that needs no script and no key; ``endpoint`` is where it is."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self.endpoint = endpoint

    async def find(self, query: str, network: Network) -> Sequence[Found]:
        """Return what there is on ``query``. Raises ``NetworkError``, and ``NotFound`` for a page that is no answer."""
        request = NetRequest(
            url=self.endpoint, method="POST", body=urlencode({"q": query, "kl": "us-en"}).encode(),
            headers=(("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "text/html")),
            timeout=SECONDS, max_bytes=BYTES,
        )  # fmt: skip
        answer = await network.send(request)
        host = urlsplit(self.endpoint).hostname
        if answer.status != 200:
            raise NetworkUnreachable(f"{host} answered with status {answer.status}", reason="status")
        page = answer.body.decode("utf-8", "replace")
        found = results(page, self.endpoint)
        if not found and "no-results" not in page and "No results" not in page:
            raise NotFound(f"what {host} answered is no list of results; it may want to know whether this is a person")
        return found


def results(page: str, base: str = ENDPOINT) -> list[Found]:
    """Return the results a page lists, advertisements left out, each address once."""
    found: dict[str, Found] = {}
    title = url = ""
    for tag in _ANCHOR.finditer(page):
        named = _CLASS.search(tag[2])
        names = named[1].split() if named else []
        if "result__a" in names:
            place = _HREF.search(tag[2])
            url = address(unescape(place[1]), base) if place else ""
            title = _text(page, tag)
            if url and title:
                found.setdefault(url, Found(title=title, url=url))
        elif "result__snippet" in names and url in found and not found[url].snippet:
            found[url] = Found(title=found[url].title, url=url, snippet=_text(page, tag))
    return list(found.values())


def address(place: str, base: str = ENDPOINT) -> str:
    """Return where a result leads, taken out of the address that counts clicks; none for what is no page."""
    try:
        whole = urlsplit(urljoin(base, place))
        if whole.path == "/l/" and "uddg" in (given := parse_qs(whole.query, max_num_fields=50)):
            whole = urlsplit(given["uddg"][0])
        host = whole.hostname or ""
    except ValueError:
        return ""
    advertised = host.endswith("duckduckgo.com") and whole.path == "/y.js"
    return clean(whole.geturl()) if whole.scheme in ("http", "https") and host and not advertised else ""


def _text(page: str, tag: "re.Match[str]") -> str:
    piece = page[tag.end() : tag.end() + _TEXT]
    end = piece.lower().find(f"</{tag[1].lower()}>")
    return clean(" ".join(unescape(_TAGS.sub("", piece[:end] if end >= 0 else "")).split()))
