"""A tool call in one line."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from vaka.cli.kit.render import compact_json
from vaka.core.types.message import ToolCall
from vaka.core.types.traits import ToolTraits, declared_traits, find_builtin_traits
from vaka.policy.tool_targets import builtin_name_of

TraitsByName: TypeAlias = Mapping[str, ToolTraits]
"""The traits that the tools of an agent declare, by the names of the tools."""
NO_DECLARED_TRAITS: TraitsByName = MappingProxyType({})


def declared_by(agent: object) -> TraitsByName:
    """Return the traits that the tools of an agent declare."""
    tools: Iterable[object] = getattr(agent, "tools", ())
    return declared_traits(tools)


def traits_of(call: ToolCall, declared: TraitsByName = NO_DECLARED_TRAITS) -> ToolTraits:
    """Return the traits of the tool of a call: the declared traits, or the traits of the built-in tool."""
    return declared.get(call.name) or find_builtin_traits(builtin_name_of(call.name))


def summary_of(call: ToolCall, declared: TraitsByName = NO_DECLARED_TRAITS) -> str:
    """Return a call in one line: its main argument, or all of them."""
    arguments: dict[str, Any] = dict(call.arguments)
    named = (arguments.get(name) for name in traits_of(call, declared).main_arguments)
    main = next((value for value in named if isinstance(value, str) and value), None)
    if main is not None or call.raw:
        return main or call.raw
    only = next(iter(arguments.values())) if len(arguments) == 1 else None
    return only if isinstance(only, str) else ", ".join(f"{name}: {_brief(value)}" for name, value in arguments.items())


def _brief(value: Any) -> str:
    if isinstance(value, list | dict):
        count = len(cast("list[Any]", value))
        return f"{count} {'item' if count == 1 else 'items'}"
    return value if isinstance(value, str) else compact_json(value)
