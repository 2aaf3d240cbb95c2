"""Jinja templates of prompts, in a sandbox: a template cannot run code, loop for long or make very long texts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.filters import FILTERS
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from vaka.core.types.errors import ConfigError

MAX_SOURCE = 200_000
MAX_TEXT = 2_000_000
MAX_ITERATIONS = 100_000
MAX_NUMBER = 10_000
MAX_WORK = 50_000_000
"""Characters that all filters of a rendering read and write."""

_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.For,
    nodes.If,
    nodes.Name,
    nodes.Const,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Filter,
    nodes.Test,
    nodes.Compare,
    nodes.Operand,
    nodes.Not,
    nodes.And,
    nodes.Or,
    nodes.CondExpr,
    nodes.Concat,
    nodes.Add,
    nodes.Sub,
    nodes.Tuple,
    nodes.Keyword,
)
"""The parts of the language without assignments, calls, macros and products, which could make texts grow fast."""
_BUILTIN_FILTERS = (
    "upper",
    "lower",
    "title",
    "capitalize",
    "trim",
    "length",
    "count",
    "default",
    "d",
    "first",
    "last",
    "list",
    "sort",
    "dictsort",
    "items",
    "indent",
    "string",
)


_COUNT_ROUNDS, _COUNT_TEXT = "_rounds", "_text"
_GETS_ENVIRONMENT = "jinja_pass_arg"
"""The attribute that filters have which get the environment."""


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
        tree = _Counting().visit(tree)
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
    work = _Work()
    environment.filters = {name: work.limit(FILTERS[name]) for name in _BUILTIN_FILTERS}
    environment.filters |= {"join": work.limit(_join), "tojson": work.limit(_to_json)}
    environment.filters |= {_COUNT_ROUNDS: work.count_rounds, _COUNT_TEXT: work.count}
    return environment


class _Counting(NodeTransformer):
    """Puts filters around loops, ``~`` and ``+`` that count the work they make."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # the name of the node
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _COUNT_ROUNDS, [], [], None, None)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return nodes.Filter(self.generic_visit(node), _COUNT_TEXT, [], [], None, None)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        return nodes.Filter(self.generic_visit(node), _COUNT_TEXT, [], [], None, None)


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


class _Work:
    """The rounds of all loops and the characters of all texts of one rendering."""

    def __init__(self) -> None:
        self._rounds = self._characters = 0

    def count_rounds(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of a loop."""
        for item in items:
            self._rounds += 1
            if self._rounds > MAX_ITERATIONS:
                raise _TooLarge(f"the loops have more than {MAX_ITERATIONS:,} rounds")
            yield item

    def count(self, value: Any) -> Any:
        """Return a value, after adding its size to the work."""
        size = len(value) if isinstance(value, Sized) else 1
        self._characters += size
        if isinstance(value, str) and size > MAX_TEXT:
            raise _TooLarge(f"a text is longer than {MAX_TEXT:,} characters")
        if self._characters > MAX_WORK:
            raise _TooLarge(f"the filters have more than {MAX_WORK:,} characters to do")
        return value

    def limit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that counts what it gets and what it returns."""

        def call_limited(*args: Any, **keywords: Any) -> Any:
            for value in args:
                self.count(value)
            return self.count(function(*args, **keywords))

        if hasattr(function, _GETS_ENVIRONMENT):
            setattr(call_limited, _GETS_ENVIRONMENT, getattr(function, _GETS_ENVIRONMENT))
        return call_limited


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
