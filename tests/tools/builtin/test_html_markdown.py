"""The conversion of HTML to Markdown, also of hostile pages."""

import inspect
import sys
from types import FrameType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.tools.builtin.html_markdown import html_to_markdown


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>A <b>b</b></h1><h3>C</h3>", "# A **b**\n\n### C"),
        ("<p>one\n  two<p>three<br>four", "one two\n\nthree\nfour"),
        ('<a href="/x y">two <i>three</i></a>.', "[two *three*](https://e.org/x%20y)."),
        ('<a href="javascript:x()">a</a> <a href="#b">b</a> <a>c</a>', "a b c"),
        ("<ul><li>a<li>b<ol start=3><li>c<li>d</ol><li>e</ul>", "- a\n- b\n  3. c\n  4. d\n- e"),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n\n> b\n\nc"),
        ("<pre>  x\n  <b>y</b> &lt;</pre>", "```\n  x\n  y <\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<table><tr><th>a<th>b<tr><td>1|<td><p>2</table>", "| a | b |\n| --- | --- |\n| 1\\| | 2 |"),
        ('<img src=i.png alt="a picture"><img src=x>', "![a picture](https://e.org/i.png)"),
        ("a<script>b</script>c<style>d</style><noscript>e</noscript><svg><text>f</text></svg>g", "acg"),
        ("a<!-- b --> c &amp; &#x41; &#99999999999999;", "a c & A \ufffd"),
        ("1 < 2 && 3 > 2", "1 < 2 && 3 > 2"),
        ("a <script>b", "a"),
        ("a <p class='x", "a"),
        ("<hr>a</nosuch></p>b<code>c</code>", "---\n\na\n\nb`c`"),
        ("<i class='icon'></i> Menu <b><i></b></i><strong> </strong>x<em><br></em>y", "Menu x\ny"),
        ("<p>a <b>b<p>c <i>d", "a **b**\n\nc *d*"),
        ("<a href=x><b>a</a>b</b>", "[**a**](https://e.org/x)b"),
        ("<a href=x><i></i><h2>Card</h2><p>more</p></a>end", "## [Card](https://e.org/x)\n\nmore\n\nend"),
        ("<table><tr><td><b>a<td><i></i>b</table>", "| **a** | b |\n| --- | --- |"),
        ("a<pre>open <b>code", "a\n\n```\nopen code\n```"),
        ("a<!-- b --!>c<!--->d", "acd"),
        ("<base href=/deep/><base href=/other/><a href=x>a</a>", "[a](https://e.org/deep/x)"),
        ("", ""),
    ],
)
def test_pages_become_markdown(html: str, text: str) -> None:
    assert html_to_markdown(html, "https://e.org/").text == text


def test_the_title_is_separate_from_the_text() -> None:
    page = html_to_markdown("<svg><title>icon</title></svg><title>A &amp;\n B</title><title>C</title>text")
    assert (page.title, page.text) == ("A & B", "text")


HOSTILE_PIECES = [
    "<div>",
    "<ul><li>x",
    "<blockquote>x",
    "<a ",
    '<a x="',
    "<!--",
    "<",
    "&#",
    "<script>",
    "<table><tr><td>",
    "<pre>",
    "<a href=x>y",
    "<b>",
    "</p>",
    "<svg>",
    "<title>",
    "<br>",
    "<b>x<i></i></b>",
    "<a href=x><i></i><p>",
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [200_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_a_large_hostile_page_is_read_to_its_end_or_cut(size: int) -> None:
    lengths = {
        piece: len(html_to_markdown(piece * (size // len(piece)), "https://e.org/").text) for piece in HOSTILE_PIECES
    }
    assert {piece: length for piece, length in lengths.items() if length > 20 * size} == {}


PIECES = [
    "<p>",
    "</p>",
    "<a\thref='x'>",
    "</a>",
    "<li>",
    "<ul>",
    "</ul>",
    "<td>",
    "<tr>",
    "a",
    "<pre>",
    "</pre>",
    "<b>",
    "</b>",
    "<script>",
    "</script>",
    "&lt;",
    "<table>",
    "</table>",
    "<h2>",
    "<blockquote>",
    "<",
    ">",
    "\x00",
]


@given(st.lists(st.sampled_from([*PIECES, " "])).map("".join))
def test_no_order_of_tags_raises_an_exception(html: str) -> None:
    assert "<script" not in html_to_markdown(html, "https://e.org/").text


NESTED = ("div", "ul", "blockquote", "b", "table", "a", "pre")


@pytest.mark.parametrize(
    "name", [NESTED[0], *(pytest.param(name, marks=pytest.mark.exhaustive) for name in NESTED[1:])]
)
def test_a_hundred_thousand_nested_tags_need_no_deeper_stack(name: str) -> None:
    html = f"<{name}>" * 100_000 + "inside" + f"</{name}>" * 100_000
    depth = len(inspect.stack())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 40)
    try:
        text = html_to_markdown(html, "https://e.org/").text
    finally:
        sys.setrecursionlimit(limit)
    assert len(text) < 1_000_000


def count_work(html: str) -> int:
    """Return the number of calls made for a page, and the length of all text passed in them besides the page."""
    work = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal work
        work += 1
        if event == "call":
            values = [value for name, value in frame.f_locals.items() if name != "html"]
            work += sum(len(value) for value in values if isinstance(value, str))
            work += sum(len(text) for value in values if isinstance(value, list) for text in cast("list[str]", value))

    sys.setprofile(note)
    try:
        html_to_markdown(html, "https://e.org/")
    finally:
        sys.setprofile(None)
    return work


MIXED = (
    "<h2>Part</h2><p>Some <b>bold</b> words &amp; a <a href='/x?y=1'>link</a>.</p><ul><li>one<li>two</ul>"
    "<table><tr><td>a<td>b</table><pre>x = 1\n</pre><blockquote>said<br>so</blockquote><img src=a alt=b>"
)


@pytest.mark.parametrize(
    "piece",
    [
        MIXED,
        "<div>",
        "<ul><li>x",
        "<blockquote>x",
        "<a href=x>y",
        "<b>",
        "</p>",
        "<td>x",
        "<a><b>x</a>",
        "<pre>x</pre>",
        "<p>x",
        "< ",
        "&#1",
        "<svg>",
        "<a x='1' y=2 z>",
        "text ",
        "<tr><a href=x>y<div>",
        "<li><a href=x>y</a>",
    ],
)
def test_conversion_takes_time_linear_in_the_page(piece: str) -> None:
    assert count_work(piece * 200) <= 2.1 * count_work(piece * 100) + 100


def test_a_page_of_five_megabytes_is_read_to_its_end() -> None:
    page = html_to_markdown(f"<title>Long</title><p>{'words and more words ' * 20}</p>" * 11_000 + "<p>the end</p>")
    assert page.title == "Long"
    assert page.text.endswith("the end")
    assert len(page.text) > 4_500_000
