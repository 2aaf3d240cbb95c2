"""HTML as Markdown: what a page says, in time that grows with its length alone, whatever it holds."""

import re
from collections.abc import Callable
from html import unescape
from urllib.parse import urljoin

import msgspec

_TAG = re.compile(r"""([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])))*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s=/"'>]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++)))?+""")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{8,}+);?")
_BLANKS = re.compile(r"[ \t\r\f\v\n\u00a0]+")
_BLANK = " \t\r\f\v\n\u00a0\x00"
_FENCES = re.compile(r"`{3,}")
_COMMENT_END = re.compile(r"--!?>")
_ATTRIBUTES = 16_384
"""Characters of one tag's attributes that are read."""
_DEEPEST = 8
"""Levels of lists and quotations that are shown; deeper ones look like the deepest of these."""
_HREF = 2_000
_MOST = 200_000
"""Tags that are read; no page that people write has as many."""
_SILENT = frozenset(("script", "style", "noscript", "template", "iframe", "object", "svg", "math", "canvas", "select"))
_RAW = frozenset(("script", "style", "iframe", "noscript", "textarea", "title", "xmp", "noembed", "noframes"))
"""What is inside these is no markup."""
_BLOCKS = frozenset(
    ("address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dl", "dt",
     "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "html", "legend", "main", "menu", "nav",
     "option", "p", "section", "summary", "tbody", "tfoot", "thead")
)  # fmt: skip
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "del": "~~", "s": "~~"}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


class Page(msgspec.Struct, frozen=True):
    """What a page says."""

    title: str
    text: str


def markdown(html: str, base: str = "") -> Page:
    """Return a page as Markdown; links are made whole with ``base``."""
    writer = _Writer(base)
    _scan(html, writer)
    return Page(writer.title, writer.end())


def _scan(html: str, writer: "_Writer") -> None:
    """Cut a page into tags and text. Each character is looked at a few times at most."""
    at, size, left = 0, len(html), _MOST
    while at < size:
        left -= 1
        if not left:
            writer.cut()
            return
        found = html.find("<", at)
        if found < 0:
            writer.text(_decoded(html[at:]))
            return
        if found > at:
            writer.text(_decoded(html[at:found]))
        at = _markup(html, found, writer)
        if at < 0:
            return  # what is open never ends: all that is left belongs to it


def _markup(html: str, at: int, writer: "_Writer") -> int:
    """Read what begins with ``<``; return where it ends, -1 when it does not."""
    if html.startswith("<!--", at):
        over = _COMMENT_END.search(html, at + 2)
        return over.end() if over else -1
    closing = html.startswith("</", at)
    if html.startswith(("<!", "<?"), at) or (closing and html[at + 2 : at + 3] not in _LETTERS):
        end = html.find(">", at)
        return end + 1 if end >= 0 else -1
    if not closing and html[at + 1 : at + 2] not in _LETTERS:
        writer.text("<")
        return at + 1
    tag = _TAG.match(html, at + 1 + closing)
    if tag is None:
        return -1
    name = tag[1].lower()
    if closing:
        writer.close(name)
        return tag.end()
    writer.open(name, tag[2][:_ATTRIBUTES])
    return _raw(html, tag.end(), name, writer) if name in _RAW else tag.end()


def _raw(html: str, at: int, name: str, writer: "_Writer") -> int:
    end = _END[name].search(html, at)
    inside = html[at : end.start() if end else len(html)]
    if name == "title":
        writer.entitle(" ".join(_decoded(inside[:_ATTRIBUTES]).split()))
    elif name not in _SILENT:
        writer.text(_decoded(inside))
    return end.start() if end else -1


_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}


def _decoded(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(text):
        found.setdefault(name.lower(), _decoded(double or single or bare))
    return found


class _Sign(str):
    """What sets text apart, and is none itself."""

    __slots__ = ()


class _Writer:
    """Markdown under construction."""

    def __init__(self, base: str) -> None:
        self.title = ""
        self._base, self._based = base, False
        self._done: list[str] = []
        """Blocks that are whole."""
        self._line: list[str] = []
        self._silent: list[str] = []
        self._lists: list[int | None] = []
        self._quotes = self._pre = 0
        self._head = self._item = ""
        self._marks: dict[str, int] = {}
        """What is set apart, and where in the line that began."""
        self._link: tuple[int, str] | None = None
        self._row: list[str] | None = None
        self._rows = 0
        self._tight = False

    def entitle(self, title: str) -> None:
        """Take the title: the first one that is not a picture's."""
        if not self._silent:
            self.title = self.title or title

    def text(self, text: str) -> None:
        """Take some text."""
        if not self._silent:
            self._line.append(text.replace("\x00", "\ufffd"))

    def open(self, name: str, attributes: str) -> None:
        """A tag begins."""
        if self._silent or name in _SILENT:
            if name in _SILENT:
                self._hush(name, attributes)
            return
        if name in _MARKS:
            self._mark(name)
        elif name in _HEADINGS or name in _BLOCKS:
            self.flush()
            self._head = _HEADINGS.get(name, "")
        elif name in _OPENING:
            _OPENING[name](self, attributes)

    def close(self, name: str) -> None:
        """A tag ends."""
        if self._silent:
            if name == self._silent[-1]:
                self._silent.pop()
            return
        if name in self._marks:
            self._unmark(name)
        elif name in _HEADINGS or name in _BLOCKS:
            self.flush()
        elif name in _CLOSING:
            _CLOSING[name](self)

    def cut(self) -> None:
        """The page has more than is read."""
        self._silent = []
        self.text(" [the rest of this page was left out]")

    def end(self) -> str:
        """Return the whole text."""
        if self._pre:
            self._pre = 1
            self.end_pre()
        self.flush()
        self.end_row()
        return "".join(self._done).strip("\n")

    # ------------------------------------------------------------------------------------------------------- blocks

    def flush(self) -> None:
        """End the block under construction."""
        if self._pre:
            return
        place = self.end_link()
        self._unmark_from(0)
        if self._row is not None:
            self._line.append(" ")
            self._link = (len(self._line), place) if place else None
            return
        text = _collapsed(self._line)
        self._line = []
        self._link = (0, place) if place else None
        head, self._head = self._head, ""
        if not text:
            return
        self._put(text.replace("\n", " ") if head else text, head)

    def _put(self, text: str, head: str = "") -> None:
        depth = min(len(self._lists), _DEEPEST)
        indent = "  " * (depth - bool(depth)) if self._item else "  " * depth
        quote = "> " * min(self._quotes, _DEEPEST)
        begin = f"{quote}{indent}{self._item}{head}"
        further = f"\n{quote}{indent}{' ' * len(self._item)}"
        between = "\n" if self._tight and self._item else "\n\n"
        self._tight, self._item = bool(self._item), ""
        self._done += [between, begin, text.replace("\n", further)]

    def begin_list(self, first: int | None) -> None:
        self.flush()
        self._lists.append(first)

    def end_list(self) -> None:
        self.flush()
        if self._lists:
            self._lists.pop()
        self._item = ""

    def begin_item(self, _: str) -> None:
        self.flush()
        number = self._lists[-1] if self._lists else None
        self._item = "- " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1

    def begin_quote(self, _: str) -> None:
        self.flush()
        self._quotes += 1

    def end_quote(self) -> None:
        self.flush()
        self._quotes = max(self._quotes - 1, 0)

    def begin_pre(self, _: str) -> None:
        self.flush()
        self._pre += 1

    def end_pre(self) -> None:
        if self._pre != 1 or self._row is not None:
            self._pre = max(self._pre - 1, 0)
            return
        text = "".join(self._line).replace("\r\n", "\n").strip("\n")
        self._line, self._marks, self._pre = [], {}, 0
        if text.strip():
            fence = "`" * max(3, 1 + max((len(run) for run in _FENCES.findall(text)), default=0))
            self._put(f"{fence}\n{text}\n{fence}")

    def rule(self, _: str) -> None:
        self.flush()
        if self._row is None and not self._pre:
            self._put("---")

    # ------------------------------------------------------------------------------------------------------- tables

    def begin_table(self, _: str) -> None:
        self.flush()
        self.end_row()
        self._rows = 0

    def end_table(self) -> None:
        self.end_row()
        self._rows = 0

    def begin_row(self, _: str) -> None:
        self.flush()
        self.end_row()
        self._row = []

    def begin_cell(self, _: str) -> None:
        if self._row is None:
            self.begin_row("")
        self.end_cell()

    def end_cell(self) -> None:
        if self._row is None:
            return
        self.end_link()
        self._unmark_from(0)
        text = _collapsed(self._line).replace("\n", " ").replace("|", "\\|")
        self._line = []
        if text or self._row:
            self._row.append(text)

    def end_row(self) -> None:
        if self._row is None:
            return
        self.end_cell()
        cells, self._row, self._pre = self._row, None, 0
        if not any(cells):
            return
        line = f"| {' | '.join(cells)} |"
        if len(cells) == 1 and not self._rows:
            self._put(cells[0])  # a table that is there for its looks
            return
        if not self._rows:
            self._put(line + "\n|" + " --- |" * len(cells))
        else:
            self._done += ["\n", line]
        self._rows += 1

    # ------------------------------------------------------------------------------------------------------- inline

    def _mark(self, name: str) -> None:
        if not self._pre and name not in self._marks:
            self._marks[name] = len(self._line)
            self._line.append(_Sign(_MARKS[name]))

    def _unmark(self, name: str) -> None:
        """End what a tag set apart; when there is nothing in it, as in many icons, it was not there."""
        begin = self._marks.pop(name)
        if self._pre:
            return
        inside = self._line[begin + 1 :]
        if any(not isinstance(piece, _Sign) and piece.strip(_BLANK) for piece in inside):
            self._line.append(_Sign(_MARKS[name]))
            return
        self._line[begin:] = inside
        self._marks = {other: at - (at > begin) for other, at in self._marks.items()}
        if self._link is not None:
            self._link = (self._link[0] - (self._link[0] > begin), self._link[1])

    def _unmark_from(self, begin: int) -> None:
        """End all that began at a place of the line or behind it, the last one first."""
        for name in [name for name, at in reversed(self._marks.items()) if at >= begin]:
            self._unmark(name)

    def line_break(self, _: str) -> None:
        self._line.append("\n" if self._pre else "\x00")

    def image(self, attributes: str) -> None:
        given = _attributes(attributes)
        alt, source = " ".join(given.get("alt", "").split()), self._whole(given.get("src", ""))
        if alt and not self._pre:
            self._line.append(f"![{alt}]({source})" if source else alt)

    def begin_base(self, attributes: str) -> None:
        """Take the address that the others begin at; the first one counts."""
        place = self._whole(_attributes(attributes).get("href", ""))
        if place and not self._based:
            self._base, self._based = place, True

    def begin_link(self, attributes: str) -> None:
        self.end_link()
        place = self._whole(_attributes(attributes).get("href", ""))
        if place and not self._pre:
            self._link = (len(self._line), place)

    def end_link(self) -> str:
        """End the link that is open; return where it leads when it has no words yet, as around a heading."""
        if self._link is None:
            return ""
        (begin, place), self._link = self._link, None
        self._unmark_from(begin)
        text = _collapsed(self._line[begin:]).replace("\n", " ")
        if not text:
            return place
        self._line[begin:] = [f"[{text}]({place}) " if self._line[-1][-1:].isspace() else f"[{text}]({place})"]
        return ""

    def close_link(self) -> None:
        self.end_link()

    def _whole(self, place: str) -> str:
        """Return an address that can be asked for, or none."""
        place = place.strip()
        if not place or place.startswith("#") or len(place) > _HREF:
            return ""
        try:
            whole = urljoin(self._base, place)
        except ValueError:
            return ""
        safe = "".join(f"%{ord(sign):02X}" if sign in " <>()\"'\\" or sign < " " else sign for sign in whole)
        return safe if safe.lower().startswith(("http://", "https://", "mailto:")) else ""

    def _hush(self, name: str, attributes: str) -> None:
        """Leave out what is inside, unless the tag is its own end."""
        if not attributes.rstrip().endswith("/") and len(self._silent) < 1_000:
            self._silent.append(name)


def _start(attributes: str) -> int:
    start = _attributes(attributes).get("start", "")
    return int(start) if start.isascii() and start.isdecimal() and len(start) < 9 else 1


_OPENING: dict[str, Callable[[_Writer, str], None]] = {
    "ul": lambda writer, _: writer.begin_list(None),
    "ol": lambda writer, given: writer.begin_list(_start(given)),
    "li": _Writer.begin_item,
    "blockquote": _Writer.begin_quote,
    "pre": _Writer.begin_pre,
    "hr": _Writer.rule,
    "table": _Writer.begin_table,
    "tr": _Writer.begin_row,
    "td": _Writer.begin_cell,
    "th": _Writer.begin_cell,
    "br": _Writer.line_break,
    "img": _Writer.image,
    "a": _Writer.begin_link,
    "base": _Writer.begin_base,
}
_CLOSING: dict[str, Callable[[_Writer], None]] = {
    "ul": _Writer.end_list,
    "ol": _Writer.end_list,
    "li": _Writer.flush,
    "blockquote": _Writer.end_quote,
    "pre": _Writer.end_pre,
    "table": _Writer.end_table,
    "tr": _Writer.end_row,
    "td": _Writer.end_cell,
    "th": _Writer.end_cell,
    "a": _Writer.close_link,
}


def _collapsed(pieces: list[str]) -> str:
    """Return text with its blanks as a page shows them; a break is kept as the end of a line."""
    lines = _BLANKS.sub(" ", "".join(pieces)).split("\x00")
    return "\n".join(line.strip() for line in lines).strip("\n")
