"""Rules: documents to values and back, with every problem of a document and its path, and their expanded patterns."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names

Scalar: TypeAlias = str | int | float | bool
Path: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value of a document."""
_T = TypeVar("_T")

VAR_TYPES = ("", "string", "int", "float", "bool")
NOTHING = "nothing"
"""The name of the rule for texts that match no other rule; a test that expects it passes when nothing matches."""
PLACEHOLDER = re.compile(r"\[(\w+)\]", re.ASCII)
"""``[name]`` with an ASCII name; other text in brackets is literal."""
_ASSIGNMENT = re.compile(r"\s*(\w+)\s*=", re.ASCII)
_MAX_SHOWN = 60


class RuleVar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An argument of a rule: how prompts call it, and the type of its value (``string`` when empty)."""

    label: str = ""
    type: str = ""


class Pattern(msgspec.Struct, frozen=True):
    """A sentence with placeholders; without ``output``, the line that a model answers follows from it."""

    input: str
    output: str = ""


class Example(msgspec.Struct, frozen=True):
    """A case for the prompt: what it shows, what the user writes, and the lines to answer."""

    subject: str
    user_text: str = ""
    output: str = ""


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """A text and what it must match: a rule (``None``: the rule of its document) and some of its arguments."""

    input: str
    args: dict[str, Scalar] = {}
    rule: str | None = None


class MatchRule(msgspec.Struct, frozen=True, kw_only=True):
    """One intent: its sentences, the arguments in them, and texts that test it."""

    name: str
    references: dict[str, str] = {}
    vars: dict[str, RuleVar] = {}
    patterns: tuple[Pattern, ...] = ()
    examples: tuple[Example, ...] = ()
    tests: tuple[RuleTest, ...] = ()


class RuleProblem(msgspec.Struct, frozen=True):
    """Something wrong with the document of a rule; a warning does not keep the rule from use."""

    path: Path
    message: str
    is_warning: bool = False


def parse_rule(document: object) -> MatchRule:
    """Return the rule of a document. Raises ``ConfigError`` with all errors; ``check_rule`` returns the warnings."""
    reader = _RuleReader(document)
    errors = [problem.message for problem in reader.problems if not problem.is_warning]
    if errors:
        raise ConfigError("\n".join(errors))
    return reader.rule


def check_rule(document: object) -> list[RuleProblem]:
    """Return every error and warning of a document."""
    return _RuleReader(document).problems


def rule_document(rule: MatchRule) -> dict[str, Any]:
    """Return the document of a rule in its shortest form; ``parse_rule`` makes it the same rule."""
    document: dict[str, Any] = {"name": rule.name}
    if rule.references:
        document["references"] = dict(rule.references)
    if rule.vars:
        document["vars"] = {name: msgspec.to_builtins(var) for name, var in rule.vars.items()}
    if rule.patterns:
        document["patterns"] = [[item.input, item.output] if item.output else item.input for item in rule.patterns]
    if rule.examples:
        document["examples"] = [_shortest(item.subject, item.user_text, item.output) for item in rule.examples]
    if rule.tests:
        document["tests"] = [_test_document(item) for item in rule.tests]
    return document


def expand_pattern(rule: MatchRule, pattern: Pattern, known: Collection[str] = ()) -> Pattern:
    """Return a pattern as prompts show it, with its output.

    Without an output, placeholders become labels and the output names each of them once. A given output is used as
    it is, behind the name of the rule if it begins with no name of ``known``; the input is then not changed.
    """
    if pattern.output:
        head = pattern.output.partition(":")[0].strip()
        prefix = "" if head == rule.name or head in known else f"{rule.name}: "
        return Pattern(pattern.input, prefix + pattern.output)
    names = list(dict.fromkeys(PLACEHOLDER.findall(pattern.input)))
    labels = {name: f"[{rule.vars.get(name, RuleVar()).label or name}]" for name in names}
    output = ", ".join(f"{name}={label}" for name, label in labels.items())
    shown = PLACEHOLDER.sub(lambda found: labels[found[1]], pattern.input)
    return Pattern(shown, f"{rule.name}: {output}" if output else rule.name)


def expand_example(rule: MatchRule, example: Example, known: Collection[str] = ()) -> Example:
    """Return an example whose lines that only set variables begin with the name of the rule."""
    lines = [_prefix_line(rule, line, known) for line in example.output.splitlines()]
    return Example(example.subject, example.user_text, "\n".join(lines))


def _prefix_line(rule: MatchRule, line: str, known: Collection[str]) -> str:
    found = _ASSIGNMENT.match(line)
    if found is None or found[1] not in rule.vars or line.partition(":")[0].strip() in known:
        return line
    return f"{rule.name}: {line.strip()}"


def _shortest(*texts: str) -> list[str]:
    items = list(texts)
    while len(items) > 1 and not items[-1]:
        items.pop()
    return items


def _test_document(test: RuleTest) -> dict[str, Any]:
    document: dict[str, Any] = {"input": test.input}
    if test.args:
        document["args"] = dict(test.args)
    if test.rule is not None:
        document["rule"] = test.rule
    return document


def _quote(text: str) -> str:
    cut = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
    return '"' + cut.replace("\n", "\\n") + '"'


class _RuleReader:
    """Reads one document; wrong parts become problems and are left out of the rule."""

    def __init__(self, document: object) -> None:
        self.problems: list[RuleProblem] = []
        self._title = "rule"
        self.rule = MatchRule(name="")
        if not isinstance(document, Mapping):
            self._add((), f"a rule is a mapping with a name, not {_kind_of(document)}")
            return
        fields = cast("Mapping[object, object]", document)
        self._check_keys(fields, MatchRule.__struct_fields__, ())
        name = self._name(fields.get("name"))
        self._title = f"rule {_quote(name)}" if name else "rule"
        variables = self._vars(self._read_mapping(fields, "vars"))
        self.rule = MatchRule(
            name=name,
            references=self._references(self._read_mapping(fields, "references")),
            vars=variables,
            patterns=self._items(fields, "patterns", lambda item, path: self._pattern(item, path, variables)),
            examples=self._items(fields, "examples", self._example),
            tests=self._items(fields, "tests", self._test),
        )

    # ------------------------------------------------------------------------------------------------------- parts

    def _name(self, value: object) -> str:
        if value is None or value == "":
            self._add(("name",), "name is required")
            return ""
        if not isinstance(value, str):
            self._add(("name",), f"name is a text, not {_kind_of(value)}; quote it")
            return ""
        if ":" in value or "：" in value or value != value.strip() or len(value.splitlines()) > 1:
            self._add(("name",), f"name {_quote(value)} must not contain ':', newlines or spaces at its ends")
        return value

    def _references(self, fields: Mapping[object, object]) -> dict[str, str]:
        references: dict[str, str] = {}
        for key, value in fields.items():
            if isinstance(key, str) and isinstance(value, str):
                references[key] = value
            else:
                path = ("references", str(key))
                self._add(path, f"reference {_quote(str(key))} is a text, not {_kind_of(value)}; quote it")
        return references

    def _vars(self, fields: Mapping[object, object]) -> dict[str, RuleVar]:
        variables: dict[str, RuleVar] = {}
        for key, value in fields.items():
            name, path = str(key), ("vars", str(key))
            variables[name] = RuleVar()
            if not isinstance(value, Mapping | None):
                self._add(path, f"var {_quote(name)} is a mapping with label and type, not {_kind_of(value)}")
                continue
            details = cast("Mapping[object, object]", value or {})
            self._check_keys(details, RuleVar.__struct_fields__, path)
            label, kind = self._text(details, "label", path), self._text(details, "type", path)
            variables[name] = RuleVar(label=label, type=kind if kind in VAR_TYPES else "")
            self._check_var(name, label, kind, path)
        return variables

    def _check_var(self, name: str, label: str, kind: str, path: Path) -> None:
        if kind not in VAR_TYPES:
            allowed = ", ".join(VAR_TYPES[1:])
            self._add((*path, "type"), f"var {_quote(name)} has invalid type {_quote(kind)}; use one of {allowed}")
        if "[" in label or "]" in label:
            self._add((*path, "label"), f"var {_quote(name)}: label must not contain '[' or ']': {_quote(label)}")
        if len(label.splitlines()) > 1:
            self._add((*path, "label"), f"var {_quote(name)}: label contains newline: {_quote(label)}")
        if not PLACEHOLDER.fullmatch(f"[{name}]"):
            text = f"var {_quote(name)} is not ASCII letters, digits and '_', so no pattern can have it as placeholder"
            self._add(path, text, is_warning=True)

    def _pattern(self, value: object, path: Path, variables: Mapping[str, RuleVar]) -> Pattern | None:
        pattern = self._pattern_value(value, path)
        if pattern is not None:
            self._check_pattern(path, pattern, variables)
        return pattern

    def _pattern_value(self, value: object, path: Path) -> Pattern | None:
        if isinstance(value, str):
            return Pattern(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[object, object]", value)
            self._check_keys(fields, Pattern.__struct_fields__, path)
            return Pattern(self._text(fields, "input", path), self._text(fields, "output", path))
        items = self._text_list(value, path, "pattern", "a text, [input] or [input, output]")
        if items is None:
            return None
        if not 1 <= len(items) <= 2:
            self._add(path, f"invalid pattern array length: {len(items)} (expected 1-2)")
            return None
        return Pattern(*items)

    def _check_pattern(self, path: Path, pattern: Pattern, variables: Mapping[str, RuleVar]) -> None:
        for text in (pattern.input, pattern.output):
            if len(text.splitlines()) > 1 or text.endswith(("\n", "\r")):
                self._add(path, f"pattern {_quote(text)} contains newline; a pattern is one line")
        for name in dict.fromkeys(PLACEHOLDER.findall(pattern.input)):
            if name not in variables:
                self._add(
                    path,
                    f"pattern {_quote(pattern.input)} has placeholder [{name}] not defined in vars"
                    + _near(name, variables),
                )
        for part in pattern.output.rpartition(":")[2].split(","):
            found = _ASSIGNMENT.match(part)
            if found is not None and found[1] not in variables:
                text = f"the output of pattern {_quote(pattern.input)} sets {found[1]}, which is not defined in vars"
                self._add(path, text + _near(found[1], variables), is_warning=True)

    def _example(self, value: object, path: Path) -> Example | None:
        if isinstance(value, Mapping):
            return self._example_object(cast("Mapping[object, object]", value), path)
        if isinstance(value, str):
            return Example(value)
        items = self._text_list(value, path, "example", "[subject, user text, output] or {input, output}")
        if items is None:
            return None
        if not 1 <= len(items) <= 3:
            self._add(path, f"invalid example array length: {len(items)} (expected 1-3)")
            return None
        return Example(*items)

    def _example_object(self, fields: Mapping[object, object], path: Path) -> Example:
        self._check_keys(fields, (*Example.__struct_fields__, "input", "formatted_to"), path)
        user_text = self._text(fields, "user_text", path) or self._text(fields, "input", path)
        output = self._text(fields, "output", path) or self._text(fields, "formatted_to", path)
        return Example(self._text(fields, "subject", path), user_text, output)

    def _test(self, value: object, path: Path) -> RuleTest | None:
        if isinstance(value, str):
            return RuleTest(input=value)
        if not isinstance(value, Mapping):
            self._add(path, f"a test is a text or {{input, args}}, not {_kind_of(value)}")
            return None
        fields = cast("Mapping[object, object]", value)
        self._check_keys(fields, RuleTest.__struct_fields__, path)
        if "input" not in fields:
            self._add(path, "a test needs an input")
        args: dict[str, Scalar] = {}
        for key, item in self._read_mapping(fields, "args", path).items():
            if isinstance(key, str) and isinstance(item, Scalar):
                args[key] = item
            else:
                self._add((*path, "args", str(key)), f"argument {_quote(str(key))} of a test is {_kind_of(item)}")
        rule = self._text(fields, "rule", path) if "rule" in fields else None
        return RuleTest(input=self._text(fields, "input", path), args=args, rule=rule)

    # ----------------------------------------------------------------------------------------------------- reading

    def _items(
        self, fields: Mapping[object, object], key: str, read: Callable[[object, Path], _T | None]
    ) -> tuple[_T, ...]:
        value = fields.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self._add((key,), f"{key} is a list, not {_kind_of(value)}")
            return ()
        items = [read(item, (key, index)) for index, item in enumerate(cast("Sequence[object]", value))]
        return tuple(item for item in items if item is not None)

    def _read_mapping(self, fields: Mapping[object, object], key: str, path: Path = ()) -> Mapping[object, object]:
        value = fields.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._add((*path, key), f"{key} is a mapping, not {_kind_of(value)}")
            return {}
        return cast("Mapping[object, object]", value)

    def _text(self, fields: Mapping[object, object], key: str, path: Path) -> str:
        value = fields.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._add((*path, key), f"{key} is a text, not {_kind_of(value)}; quote it")
        return ""

    def _text_list(self, value: object, path: Path, what: str, forms: str) -> list[str] | None:
        if not isinstance(value, list | tuple):
            self._add(path, f"{what} is {forms}, not {_kind_of(value)}; quote it")
            return None
        items = cast("Sequence[object]", value)
        wrong = next((item for item in items if not isinstance(item, str)), None)
        if wrong is not None:
            self._add(path, f"{what} is {forms}, with {_kind_of(wrong)} in it; quote it")
            return None
        return [str(item) for item in items]

    def _check_keys(self, fields: Mapping[object, object], known: Sequence[str], path: Path) -> None:
        for key in fields:
            if not isinstance(key, str) or key not in known:
                text = f"unknown key {_quote(str(key))} is ignored"
                self._add((*path, str(key)), text + _near(str(key), known), is_warning=True)

    def _add(self, path: Path, message: str, *, is_warning: bool = False) -> None:
        self.problems.append(RuleProblem(path, f"{self._title}: {message}", is_warning))


def _near(name: str, known: Iterable[str]) -> str:
    near = find_near_names(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a bool",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), type(value).__name__)
