"""Jinja templates of prompts, in a sandbox: a template cannot run code, loop for long or make very long texts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.filters import FILTERS
from jinja2.sandbox import SandboxedEnvironment

from vaka.core.types.errors import ConfigError

MAX_SOURCE = 200_000
MAX_TEXT = 2_000_000
MAX_ITERATIONS = 100_000
MAX_NUMBER = 10_000

_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Name, nodes.Const, nodes.Getattr,
    nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Not, nodes.And, nodes.Or,
    nodes.CondExpr, nodes.Concat, nodes.Add, nodes.Sub, nodes.Tuple, nodes.Keyword,
)  # fmt: skip
"""The parts of the language without assignments, calls, macros and products, which could make texts grow fast."""
_BUILTIN_FILTERS = (
    "upper", "lower", "title", "capitalize", "trim", "length", "count", "default", "d", "first", "last", "list",
    "sort", "dictsort", "items", "indent", "string",
)  # fmt: skip


class _TooLarge(TemplateError):
    """A limit of templates was exceeded."""


def render_template(source: str, data: Mapping[str, Any]) -> str:
    """Return the text that the template makes of ``data``. Raises ``ConfigError`` with the line where it can."""
    if len(source) > MAX_SOURCE:
        raise ConfigError(f"the template has {len(source):,} characters; the limit is {MAX_SOURCE:,}")
    environment = _environment()
    try:
        tree = environment.parse(source)
        _check_nodes(tree)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "_counted", [], [], None, None)
        template = environment.template_class.from_code(environment, environment.compile(tree), environment.globals)
        return "".join(_limit_total(template.generate(data)))
    except TemplateSyntaxError as error:
        raise ConfigError(f"template, line {error.lineno}: {error.message}") from None
    except (RecursionError, SyntaxError, MemoryError):  # of Python's own compiler
        raise ConfigError("template: nested too deep") from None
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise ConfigError(f"template: {error}") from None


def _environment() -> SandboxedEnvironment:
    environment = SandboxedEnvironment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        optimized=False,  # which evaluates nested constants once for each level
    )
    environment.globals = {}
    environment.filters = {name: _limit_result(FILTERS[name]) for name in _BUILTIN_FILTERS}
    environment.filters |= {"join": _join, "tojson": _limit_result(_to_json), "_counted": _counter()}
    return environment


def _check_nodes(tree: nodes.Template) -> None:
    for node in _walk(tree):
        if isinstance(node, nodes.Call) and not _is_items_call(node):
            raise TemplateSyntaxError("calls are not available in templates of prompts", node.lineno)
        if not isinstance(node, (*_NODES, nodes.Call)):
            raise TemplateSyntaxError(f"{type(node).__name__} is not available in templates of prompts", node.lineno)
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateSyntaxError("recursive loops are not available in templates of prompts", node.lineno)
        if isinstance(node, nodes.Const) and isinstance(node.value, int | float) and abs(node.value) > MAX_NUMBER:
            raise TemplateSyntaxError(f"numbers up to {MAX_NUMBER:,} are available, not {node.value}", node.lineno)


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _is_items_call(node: nodes.Call) -> bool:
    """Return whether a call is ``NAME.items()``."""
    return isinstance(node.node, nodes.Getattr) and node.node.attr == "items" and not (node.args or node.kwargs)


def _counter() -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a filter that counts all rounds of the loops of one rendering."""
    count = 0

    def count_rounds(items: Iterable[Any]) -> Iterator[Any]:
        nonlocal count
        for item in items:
            count += 1
            if count > MAX_ITERATIONS:
                raise _TooLarge(f"the loops have more than {MAX_ITERATIONS:,} rounds")
            yield item

    return count_rounds


def _limit_result(function: Callable[..., Any]) -> Callable[..., Any]:
    def call_limited(*args: Any, **keywords: Any) -> Any:
        return _check_length(function(*args, **keywords))

    for name in ("jinja_pass_arg", "jinja_async_variant"):  # filters that get the environment say so in an attribute
        if hasattr(function, name):
            setattr(call_limited, name, getattr(function, name))
    return call_limited


def _check_length(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise _TooLarge(f"a text is longer than {MAX_TEXT:,} characters")
    return value


def _limit_total(pieces: Iterable[str]) -> Iterator[str]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_TEXT:
            raise _TooLarge(f"the prompt is longer than {MAX_TEXT:,} characters")
        yield piece


def _join(items: Iterable[Any], separator: str = "", attribute: str = "") -> str:
    pieces: list[str] = []
    total = 0
    for item in items:
        pieces.append(str(item[attribute] if attribute else item))
        total += len(pieces[-1]) + len(separator)
        if total > MAX_TEXT:
            raise _TooLarge(f"a text is longer than {MAX_TEXT:,} characters")
    return separator.join(pieces)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
