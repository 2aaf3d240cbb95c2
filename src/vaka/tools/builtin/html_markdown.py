"""Convert HTML to Markdown in time linear in the length of the page."""

import re
from collections.abc import Callable
from html import unescape
from urllib.parse import urljoin

import msgspec

_TAG = re.compile(r"""([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])))*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/"'>]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++)))?+""")
_LONG_ENTITY = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{8,}+);?")
_WHITESPACE_RUN = re.compile(r"[ \t\r\f\v\n\u00a0]+")
_WHITESPACE = " \t\r\f\v\n\u00a0\x00"
_BACKTICK_RUN = re.compile(r"`{3,}")
_COMMENT_END = re.compile(r"--!?>")
_MAX_ATTRIBUTE_CHARACTERS = 16_384
"""Characters read of the attributes of one tag."""
_MAX_DEPTH = 8
"""Levels of lists and quotations that are indented; deeper ones look like the deepest of these."""
_MAX_URL_LENGTH = 2_000
_MAX_TAGS = 200_000
"""Tags after which the rest of a page is ignored."""
_SKIPPED_ELEMENTS = frozenset(
    ("script", "style", "noscript", "template", "iframe", "object", "svg", "math", "canvas", "select")
)
_RAW_ELEMENTS = frozenset(("script", "style", "iframe", "noscript", "textarea", "title", "xmp", "noembed", "noframes"))
"""Elements whose content is not markup."""
_BLOCK_ELEMENTS = frozenset(
    (
        "address",
        "article",
        "aside",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "html",
        "legend",
        "main",
        "menu",
        "nav",
        "option",
        "p",
        "section",
        "summary",
        "tbody",
        "tfoot",
        "thead",
    )
)
_TAG_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_INLINE_MARKS = {
    "strong": "**",
    "b": "**",
    "em": "*",
    "i": "*",
    "code": "`",
    "kbd": "`",
    "samp": "`",
    "del": "~~",
    "s": "~~",
}
_INLINE_TAGS = frozenset(("td", "th", "br", "img", "a", "base"))
"""Elements with a handler that do not end a block."""
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


class MarkdownPage(msgspec.Struct, frozen=True):
    """The title and text of a page."""

    title: str
    text: str


def html_to_markdown(html: str, base: str = "") -> MarkdownPage:
    """Return a page as Markdown; relative links are resolved against ``base``."""
    writer = _MarkdownWriter(base)
    _scan_html(html, writer)
    return MarkdownPage(writer.title, writer.finish())


def _scan_html(html: str, writer: "_MarkdownWriter") -> None:
    """Split a page into tags and text, in linear time."""
    at = 0
    size = len(html)
    left = _MAX_TAGS
    while at < size:
        left -= 1
        if not left:
            writer.truncate()
            return
        found = html.find("<", at)
        if found < 0:
            writer.add_text(_decode_entities(html[at:]))
            return
        if found > at:
            writer.add_text(_decode_entities(html[at:found]))
        at = _read_markup(html, found, writer)
        if at < 0:
            return  # an unterminated tag or comment takes the rest of the page


def _read_markup(html: str, at: int, writer: "_MarkdownWriter") -> int:
    """Read the markup that begins with ``<``; return where it ends, -1 when it does not end."""
    if html.startswith("<!--", at):
        comment_end = _COMMENT_END.search(html, at + 2)
        return comment_end.end() if comment_end else -1
    closing = html.startswith("</", at)
    if html.startswith(("<!", "<?"), at) or (closing and html[at + 2 : at + 3] not in _TAG_LETTERS):
        end = html.find(">", at)
        return end + 1 if end >= 0 else -1
    if not closing and html[at + 1 : at + 2] not in _TAG_LETTERS:
        writer.add_text("<")
        return at + 1
    tag = _TAG.match(html, at + 1 + closing)
    if tag is None:
        return -1
    name = tag[1].lower()
    if closing:
        writer.close_tag(name)
        return tag.end()
    writer.open_tag(name, tag[2][:_MAX_ATTRIBUTE_CHARACTERS])
    return _read_raw_element(html, tag.end(), name, writer) if name in _RAW_ELEMENTS else tag.end()


def _read_raw_element(html: str, at: int, name: str, writer: "_MarkdownWriter") -> int:
    end = _END_TAGS[name].search(html, at)
    inside = html[at : end.start() if end else len(html)]
    if name == "title":
        writer.set_title(" ".join(_decode_entities(inside[:_MAX_ATTRIBUTE_CHARACTERS]).split()))
    elif name not in _SKIPPED_ELEMENTS:
        writer.add_text(_decode_entities(inside))
    return end.start() if end else -1


_END_TAGS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW_ELEMENTS}


def _decode_entities(text: str) -> str:
    return unescape(_LONG_ENTITY.sub("\ufffd", text)) if "&" in text else text


def _parse_attributes(text: str) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(text):
        attributes.setdefault(name.lower(), _decode_entities(double or single or bare))
    return attributes


class _Marker(str):
    """A Markdown mark such as ``**``, as opposed to text."""

    __slots__ = ()


class _MarkdownWriter:
    """Markdown under construction."""

    def __init__(self, base: str) -> None:
        self.title = ""
        self._base, self._has_base = base, False
        self._blocks: list[str] = []
        """Finished blocks and the line breaks between them."""
        self._line: list[str] = []
        self._skipped: list[str] = []
        self._lists: list[int | None] = []
        self._quote_depth = self._pre_depth = 0
        self._heading = self._bullet = ""
        self._marks: dict[str, int] = {}
        """Open inline elements, and their start in the line."""
        self._link: tuple[int, str] | None = None
        self._row: list[str] | None = None
        self._row_count = 0
        self._tight = False

    def set_title(self, title: str) -> None:
        """Set the title unless it is set or inside a skipped element such as an SVG picture."""
        if not self._skipped:
            self.title = self.title or title

    def add_text(self, text: str) -> None:
        if not self._skipped:
            self._line.append(text.replace("\x00", "\ufffd"))

    def open_tag(self, name: str, attributes: str) -> None:
        if self._skipped or name in _SKIPPED_ELEMENTS:
            if name in _SKIPPED_ELEMENTS:
                self._skip_content(name, attributes)
            return
        if name in _INLINE_MARKS:
            self._open_mark(name)
        elif name in _HEADINGS or name in _BLOCK_ELEMENTS:
            self.end_block()
            self._heading = _HEADINGS.get(name, "")
        elif name in _OPEN_HANDLERS:
            if name not in _INLINE_TAGS:
                self.end_block()
            _OPEN_HANDLERS[name](self, attributes)

    def close_tag(self, name: str) -> None:
        if self._skipped:
            if name == self._skipped[-1]:
                self._skipped.pop()
            return
        if name in self._marks:
            self._close_mark(name)
        elif name in _HEADINGS or name in _BLOCK_ELEMENTS:
            self.end_block()
        elif name in _CLOSE_HANDLERS:
            _CLOSE_HANDLERS[name](self)

    def truncate(self) -> None:
        """Note that the rest of the page is not read."""
        self._skipped = []
        self.add_text(" [the rest of this page was left out]")

    def finish(self) -> str:
        if self._pre_depth:
            self._pre_depth = 1
            self.end_pre()
        self.end_block()
        self.end_row()
        return "".join(self._blocks).strip("\n")

    # ------------------------------------------------------------------------------------------------------- blocks

    def end_block(self) -> None:
        if self._pre_depth:
            return
        url = self.end_link()
        self._close_marks_from(0)
        if self._row is not None:
            self._line.append(" ")
            self._link = (len(self._line), url) if url else None
            return
        text = _collapse_whitespace(self._line)
        self._line = []
        self._link = (0, url) if url else None
        heading, self._heading = self._heading, ""
        if text:
            self._add_block(text.replace("\n", " ") if heading else text, heading)

    def _add_block(self, text: str, head: str = "") -> None:
        depth = min(len(self._lists), _MAX_DEPTH)
        indent = "  " * (depth - bool(depth)) if self._bullet else "  " * depth
        quote = "> " * min(self._quote_depth, _MAX_DEPTH)
        begin = f"{quote}{indent}{self._bullet}{head}"
        further = f"\n{quote}{indent}{' ' * len(self._bullet)}"
        between = "\n" if self._tight and self._bullet else "\n\n"
        self._tight, self._bullet = bool(self._bullet), ""
        self._blocks += [between, begin, text.replace("\n", further)]

    def begin_list(self, first: int | None) -> None:
        self._lists.append(first)

    def end_list(self) -> None:
        self.end_block()
        if self._lists:
            self._lists.pop()
        self._bullet = ""

    def begin_item(self, _: str) -> None:
        number = self._lists[-1] if self._lists else None
        self._bullet = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1

    def begin_quote(self, _: str) -> None:
        self._quote_depth += 1

    def end_quote(self) -> None:
        self.end_block()
        self._quote_depth = max(self._quote_depth - 1, 0)

    def begin_pre(self, _: str) -> None:
        self._pre_depth += 1

    def end_pre(self) -> None:
        if self._pre_depth != 1 or self._row is not None:
            self._pre_depth = max(self._pre_depth - 1, 0)
            return
        text = "".join(self._line).replace("\r\n", "\n").strip("\n")
        self._line = []
        self._marks = {}
        self._pre_depth = 0
        if text.strip():
            fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICK_RUN.findall(text)), default=0))
            self._add_block(f"{fence}\n{text}\n{fence}")

    def add_rule(self, _: str) -> None:
        if self._row is None and not self._pre_depth:
            self._add_block("---")

    # ------------------------------------------------------------------------------------------------------- tables

    def begin_table(self, _: str) -> None:
        self.end_row()
        self._row_count = 0

    def end_table(self) -> None:
        self.end_row()
        self._row_count = 0

    def begin_row(self, _: str) -> None:
        self.end_row()
        self._row = []

    def begin_cell(self, _: str) -> None:
        if self._row is None:
            self.end_block()
            self.begin_row("")
        self.end_cell()

    def end_cell(self) -> None:
        if self._row is None:
            return
        self.end_link()
        self._close_marks_from(0)
        text = _collapse_whitespace(self._line).replace("\n", " ").replace("|", "\\|")
        self._line = []
        if text or self._row:
            self._row.append(text)

    def end_row(self) -> None:
        if self._row is None:
            return
        self.end_cell()
        cells = self._row
        self._row = None
        self._pre_depth = 0
        if not any(cells):
            return
        line = f"| {' | '.join(cells)} |"
        if len(cells) == 1 and not self._row_count:
            self._add_block(cells[0])  # a table used for layout
            return
        if not self._row_count:
            self._add_block(line + "\n|" + " --- |" * len(cells))
        else:
            self._blocks += ["\n", line]
        self._row_count += 1

    # ------------------------------------------------------------------------------------------------------- inline

    def _open_mark(self, name: str) -> None:
        if not self._pre_depth and name not in self._marks:
            self._marks[name] = len(self._line)
            self._line.append(_Marker(_INLINE_MARKS[name]))

    def _close_mark(self, name: str) -> None:
        """End an inline element; an empty one, as in many icons, leaves no marks."""
        begin = self._marks.pop(name)
        if self._pre_depth:
            return
        inside = self._line[begin + 1 :]
        if any(not isinstance(piece, _Marker) and piece.strip(_WHITESPACE) for piece in inside):
            self._line.append(_Marker(_INLINE_MARKS[name]))
            return
        self._line[begin:] = inside
        self._marks = {other: at - (at > begin) for other, at in self._marks.items()}
        if self._link is not None:
            self._link = (self._link[0] - (self._link[0] > begin), self._link[1])

    def _close_marks_from(self, begin: int) -> None:
        """End all inline elements opened at ``begin`` or later, the last one first."""
        for name in [name for name, at in reversed(self._marks.items()) if at >= begin]:
            self._close_mark(name)

    def add_line_break(self, _: str) -> None:
        self._line.append("\n" if self._pre_depth else "\x00")

    def add_image(self, attributes: str) -> None:
        given = _parse_attributes(attributes)
        alt, source = " ".join(given.get("alt", "").split()), self._absolute_url(given.get("src", ""))
        if alt and not self._pre_depth:
            self._line.append(f"![{alt}]({source})" if source else alt)

    def set_base(self, attributes: str) -> None:
        """Set the base of relative links; the first ``<base>`` counts."""
        url = self._absolute_url(_parse_attributes(attributes).get("href", ""))
        if url and not self._has_base:
            self._base, self._has_base = url, True

    def begin_link(self, attributes: str) -> None:
        self.end_link()
        url = self._absolute_url(_parse_attributes(attributes).get("href", ""))
        if url and not self._pre_depth:
            self._link = (len(self._line), url)

    def end_link(self) -> str:
        """End the open link; return its address when it has no text yet, as around a heading."""
        if self._link is None:
            return ""
        (begin, url), self._link = self._link, None
        self._close_marks_from(begin)
        text = _collapse_whitespace(self._line[begin:]).replace("\n", " ")
        if not text:
            return url
        self._line[begin:] = [f"[{text}]({url}) " if self._line[-1][-1:].isspace() else f"[{text}]({url})"]
        return ""

    def _absolute_url(self, url: str) -> str:
        """Return an absolute http, https or mailto address, or ``""``."""
        url = url.strip()
        if not url or url.startswith("#") or len(url) > _MAX_URL_LENGTH:
            return ""
        try:
            url = urljoin(self._base, url)
        except ValueError:
            return ""
        safe = "".join(f"%{ord(sign):02X}" if sign in " <>()\"'\\" or sign < " " else sign for sign in url)
        return safe if safe.lower().startswith(("http://", "https://", "mailto:")) else ""

    def _skip_content(self, name: str, attributes: str) -> None:
        """Ignore the content of an element unless the tag is self-closing."""
        if not attributes.rstrip().endswith("/") and len(self._skipped) < 1_000:
            self._skipped.append(name)


def _list_start(attributes: str) -> int:
    start = _parse_attributes(attributes).get("start", "")
    return int(start) if start.isascii() and start.isdecimal() and len(start) < 9 else 1


_OPEN_HANDLERS: dict[str, Callable[[_MarkdownWriter, str], None]] = {
    "ul": lambda writer, _: writer.begin_list(None),
    "ol": lambda writer, attributes: writer.begin_list(_list_start(attributes)),
    "li": _MarkdownWriter.begin_item,
    "blockquote": _MarkdownWriter.begin_quote,
    "pre": _MarkdownWriter.begin_pre,
    "hr": _MarkdownWriter.add_rule,
    "table": _MarkdownWriter.begin_table,
    "tr": _MarkdownWriter.begin_row,
    "td": _MarkdownWriter.begin_cell,
    "th": _MarkdownWriter.begin_cell,
    "br": _MarkdownWriter.add_line_break,
    "img": _MarkdownWriter.add_image,
    "a": _MarkdownWriter.begin_link,
    "base": _MarkdownWriter.set_base,
}
_CLOSE_HANDLERS: dict[str, Callable[[_MarkdownWriter], object]] = {
    "ul": _MarkdownWriter.end_list,
    "ol": _MarkdownWriter.end_list,
    "li": _MarkdownWriter.end_block,
    "blockquote": _MarkdownWriter.end_quote,
    "pre": _MarkdownWriter.end_pre,
    "table": _MarkdownWriter.end_table,
    "tr": _MarkdownWriter.end_row,
    "td": _MarkdownWriter.end_cell,
    "th": _MarkdownWriter.end_cell,
    "a": _MarkdownWriter.end_link,
}


def _collapse_whitespace(pieces: list[str]) -> str:
    """Return text with whitespace collapsed as browsers do; ``<br>`` becomes a line break."""
    lines = _WHITESPACE_RUN.sub(" ", "".join(pieces)).split("\x00")
    return "\n".join(line.strip() for line in lines).strip("\n")
