"""The traits of tools: what their calls do, and which of their arguments name the files, commands and URLs."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.core.types.errors import InvalidInput

TRAITS_FILE = Path(__file__).with_name("builtin_traits.json")
"""The traits that the built-in tools declare; ``python -m scripts.schema`` writes it. A viewer of a log, which knows
only the names of tools, reads it: to import the tools themselves would cost much more."""

_NAME_TUPLES = ("paths", "folders", "summary", "replacement", "rule_arguments")


class ToolTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the calls of a tool do, and which of their arguments name what they do it to.

    Traits are not part of the spec and not of the log: models do not see them, and an approval outlives their change.
    """

    reads: bool = False
    """It reads files, or other data of this machine."""
    writes: bool = False
    """It changes the files that ``paths`` name."""
    commands: bool = False
    """It runs or ends commands."""
    network: bool = False
    """It uses the network."""
    session: bool = False
    """It uses only what belongs to the session, such as its to-do list and its commands in the background."""
    paths: tuple[str, ...] = ()
    """The arguments that are the path of a file."""
    folders: tuple[str, ...] = ()
    """The arguments that are a folder of which any file may be read; the working folder if none is given."""
    pattern: str = ""
    """The argument with a pattern of files, which starts from the folder."""
    command: str = ""
    """The argument with a command for ``bash``."""
    url: str = ""
    summary: tuple[str, ...] = ()
    """The arguments that tell in few words what a call is about; by default the command, URL, paths or folders."""
    content: str = ""
    """The argument with the whole new content of the file."""
    replacement: tuple[str, ...] = ()
    """The arguments with a passage of the file and with the text that takes its place."""
    replacements: str = ""
    """The argument with a list of objects, each of which has the arguments of ``replacement``."""
    rule_arguments: tuple[str, ...] = ()
    """Other arguments that a rule may name, as in ``Grep(output_mode:content)``; of built-in tools only."""

    def __post_init__(self) -> None:
        for field in _NAME_TUPLES:
            names: object = getattr(self, field)
            if not _is_name_tuple(names):
                raise InvalidInput(f"traits: {field} must be a tuple of names, such as ('path',); got {names!r}")
        if len(self.replacement) not in (0, 2):
            raise InvalidInput(f"traits: replacement must name two arguments, old and new; got {self.replacement!r}")
        if self.paths and not (self.reads or self.writes):
            raise InvalidInput("traits: a tool with paths must say whether it reads them, writes them, or both")
        for field, flag in (("folders", "reads"), ("command", "commands"), ("url", "network")):
            if getattr(self, field) and not getattr(self, flag):
                raise InvalidInput(f"traits: a tool with {field}={getattr(self, field)!r} needs {flag}=True")

    @property
    def main_arguments(self) -> tuple[str, ...]:
        """The arguments that tell what a call is about."""
        named = tuple(filter(None, (self.command, self.url)))
        return self.summary or named or self.paths or self.folders

    @property
    def argument_names(self) -> frozenset[str]:
        """All arguments that the traits name."""
        single = (self.pattern, self.command, self.url, self.content, self.replacements)
        # the arguments of replacement are then fields of the objects in the list
        replaced = () if self.replacements else self.replacement
        return frozenset({*self.paths, *self.folders, *self.summary, *replaced, *filter(None, single)})


def _is_name_tuple(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in cast("tuple[object, ...]", value))


NO_TRAITS = ToolTraits()
"""The traits of a tool that declares none: nothing is known about its calls."""


@cache
def builtin_traits() -> Mapping[str, ToolTraits]:
    """Return the traits of the built-in tools by name."""
    return msgspec.json.decode(TRAITS_FILE.read_bytes(), type=dict[str, ToolTraits])


def find_builtin_traits(name: str) -> ToolTraits:
    """Return the traits of a built-in tool by its name, ``NO_TRAITS`` for any other name."""
    return builtin_traits().get(name, NO_TRAITS)


def find_traits(tool: object, name: str) -> ToolTraits:
    """Return the traits that a tool declares, or else the traits of the built-in tool ``name``."""
    declared: object = getattr(tool, "traits", NO_TRAITS)
    return declared if isinstance(declared, ToolTraits) and declared is not NO_TRAITS else find_builtin_traits(name)


def add_defaults(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, with the defaults in the schema of the tool for missing arguments."""
    properties: object = parameters.get("properties")
    listed = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
    fields = {name: cast("dict[str, Any]", field) for name, field in listed.items() if isinstance(field, dict)}
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {**defaults, **arguments}


def declared_traits(tools: Iterable[object]) -> dict[str, ToolTraits]:
    """Return the traits of those tools that declare some, by the names of the tools."""
    known = ((getattr(tool, "name", ""), getattr(tool, "traits", NO_TRAITS)) for tool in tools)
    return {name: traits for name, traits in known if isinstance(traits, ToolTraits) and traits != NO_TRAITS}
