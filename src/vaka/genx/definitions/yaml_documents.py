"""YAML as JSON: texts, numbers, truth values, nothing, lists and tables, read with the line of each value.

Scalars follow the core schema of YAML 1.2: ``yes``, ``no`` and dates are texts. Aliases and merge keys work; a file
cannot use them to become larger or deeper than a document may be.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from vaka.config.documents import JsonPath
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.fields import MAX_NESTING, MAX_VALUES

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
}


def parse_yaml(text: str, origin: str) -> tuple[object, dict[JsonPath, int]]:
    """Return a document and the line of each of its values. Raises ``ConfigError`` with the line."""
    import yaml  # noqa: PLC0415  # takes 30 ms, and most commands read no YAML

    # Only events come from the parser in C: its composer overflows the stack on deep nesting and kills the process.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        builder = _DocumentBuilder(cast("Any", yaml).parse(text, Loader=loader), origin)
        return builder.build_document(), builder.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{origin}:{line}: not YAML: {error.problem or 'it cannot be read'}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{origin}: not YAML: it has a character that YAML does not allow") from None


def write_yaml(document: object) -> str:
    """Return a document as YAML that ``parse_yaml`` reads as the same document."""
    import yaml  # noqa: PLC0415

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        is_printable = text.replace("\n", "").replace("\t", "").isprintable()
        style = '"' if not is_printable else "|" if "\n" in text else None if _is_plain_text(text) else '"'
        return dumper.represent_scalar(f"{_TAG}str", text, style=style)

    Dumper.add_representer(str, represent_text)
    written: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return written


def resolve_scalar(text: str) -> object:
    """Return the value of a plain scalar. Raises ``ValueError`` for a number that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a number of JSON")
    return float(text) if _NUMBER.fullmatch(text) else text


def _is_plain_text(text: str) -> bool:
    try:
        return isinstance(resolve_scalar(text), str)
    except ValueError:
        return False


class _DocumentBuilder:
    """Builds the value of the first document of a stream of events; a second document is an error."""

    def __init__(self, events: Iterator[Any], origin: str) -> None:
        self.events = events
        self.origin = origin
        self.lines: dict[JsonPath, int] = {}
        self.anchors: dict[str, object] = {}
        self.open_anchors: set[str] = set()
        self.count = 0

    def build_document(self) -> object:
        value: object = None
        documents = 0
        for event in self.events:
            if _name_of(event) == "DocumentStart":
                documents += 1
                if documents > 1:
                    raise self.error(event, "expected one document, got several; write each to a file of its own")
                value = self.build_value(next(self.events), ())
        return value

    def error(self, event: Any, message: str) -> ConfigError:
        return ConfigError(f"{self.origin}:{event.start_mark.line + 1}: {message}")

    def count_values(self, event: Any, more: int) -> None:
        self.count += more
        if self.count > MAX_VALUES:
            raise self.error(event, f"the document has more than {MAX_VALUES} values")

    def build_value(self, event: Any, path: JsonPath) -> object:
        self.lines.setdefault(path, event.start_mark.line + 1)
        self.count_values(event, 1)
        name = _name_of(event)
        if name == "Alias":
            return self.find_anchor(event)
        if name == "Scalar":
            value = self.build_scalar(event)
        elif len(path) >= MAX_NESTING:
            raise self.error(event, f"nested deeper than {MAX_NESTING} levels")
        else:
            if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
                raise self.error(event, f"the tag {event.tag!r} is not supported")
            self.open_anchors.add(event.anchor)
            value = self.build_table(path) if name == "MappingStart" else self.build_list(path)
            self.open_anchors.discard(event.anchor)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def find_anchor(self, event: Any) -> object:
        if event.anchor in self.open_anchors:
            raise self.error(event, f"the alias *{event.anchor} refers to a value that contains it")
        if event.anchor not in self.anchors:
            raise self.error(event, f"the alias *{event.anchor} has no anchor before it")
        return self.anchors[event.anchor]

    def build_list(self, path: JsonPath) -> list[object]:
        items: list[object] = []
        while _name_of(event := next(self.events)) != "SequenceEnd":
            items.append(self.build_value(event, (*path, len(items))))
        return items

    def build_table(self, path: JsonPath) -> dict[str, object]:
        table: dict[str, object] = {}
        merged: dict[str, object] = {}
        while _name_of(event := next(self.events)) != "MappingEnd":
            key = self.build_key(event)
            if key == "<<" and event.implicit[0]:
                self.merge(event, self.build_value(next(self.events), (*path, key)), merged)
                continue
            if key in table:
                raise self.error(event, f"{key!r} appears twice")
            self.lines[(*path, key)] = event.start_mark.line + 1
            table[key] = self.build_value(next(self.events), (*path, key))
        return {**merged, **table} if merged else table

    def build_key(self, event: Any) -> str:
        if _name_of(event) == "Scalar":
            if event.anchor is not None:
                self.anchors[event.anchor] = event.value
            return cast("str", event.value)
        value = self.find_anchor(event) if _name_of(event) == "Alias" else None
        if not isinstance(value, str):
            raise self.error(event, "a key must be a text")
        return value

    def merge(self, event: Any, value: object, merged: dict[str, object]) -> None:
        """Add the fields of the tables after ``<<``; of two with one name the first counts."""
        tables = cast("list[object]", value) if isinstance(value, list) else [value]
        for item in tables:
            if not isinstance(item, dict):
                raise self.error(event, "expected an alias of a table after <<")
            table = cast("dict[str, object]", item)
            self.count_values(event, len(table))
            for key, inner in table.items():
                merged.setdefault(key, inner)

    def build_scalar(self, event: Any) -> object:
        text: str = event.value
        tag = (event.tag or "").removeprefix(_TAG)
        if tag in ("!", "str") or (not tag and not event.implicit[0]):
            return text
        try:
            value = resolve_scalar(text)
        except ValueError:
            raise self.error(event, f"{text[:40]!r} is not a number that JSON has") from None
        if not tag:
            return value
        if not isinstance(value, _SCALAR_TAGS.get(tag, ())) or (isinstance(value, bool) and tag != "bool"):
            raise self.error(event, f"the tag {event.tag!r} does not fit, or is not supported")
        return float(cast("float", value)) if tag == "float" else value


def _name_of(event: object) -> str:
    return type(event).__name__.removesuffix("Event")
