"""Sets of tools."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.tools.context import FakeContext
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.tools import Toolset, tool


@tool(effect="read")
def look(name: str) -> str:
    """Look something up."""
    return f"looked at {name}"


def write(name: str) -> str:
    """Write something down."""
    return f"wrote {name}"


class MinimalTool:
    """A tool that is not a function."""

    spec = ToolSpec(name="bare")

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return InvalidArguments(f"no {raw}")

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        return arguments


def test_tools_are_found_by_name_in_order() -> None:
    tools = Toolset([look, write, MinimalTool()])
    assert list(tools) == ["look", "write", "bare"]
    assert tools["look"] is look
    assert tools["write"].spec.name == "write"
    assert len(tools) == 3
    assert "look" in tools
    assert repr(tools) == "Toolset(look, write, bare)"
    assert Toolset([write])["write"] is tools["write"]


@dataclass
class InstanceTool:
    """A tool whose spec is an instance attribute."""

    spec: ToolSpec

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return InvalidArguments(f"no {raw}")

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        return arguments


def test_a_tool_may_have_its_spec_as_an_instance_attribute() -> None:
    instance = InstanceTool(ToolSpec(name="instance"))
    assert Toolset([instance])["instance"] is instance


def test_two_tools_with_one_name_are_an_error() -> None:
    with pytest.raises(InvalidInput, match="two tools are named 'look'"):
        Toolset([look, tool(write, name="look")])
    with pytest.raises(InvalidInput, match=r"two tools are named 'a_b' \('a.b' and 'a b'\)"):
        Toolset([tool(write, name="a.b"), tool(write, name="a b")])
    with pytest.raises(InvalidInput, match="two tools are named 'look'"):
        Toolset([look]) + Toolset([look])


def test_the_original_name_is_kept() -> None:
    assert Toolset([tool(write, name="my write")]).original_names == {"my_write": "my write"}


async def test_tools_can_be_prefixed_and_renamed() -> None:
    tools = Toolset([look, write]).prefix("fs.")
    assert tools.original_names == {"fs_look": "fs.look", "fs_write": "fs.write"}
    renamed = tools.rename({"fs_look": "see"})
    assert list(renamed) == ["see", "fs_write"]
    see = renamed["see"]
    assert see.spec.name == "see"
    assert see.spec is see.spec
    assert see.spec.effect == "read"
    assert see.parse('{"name": "x"}') == ParsedArguments({"name": "x"})
    assert await see.call(FakeContext(), {"name": "x"}) == "looked at x"
    assert repr(see) == "RenamedTool('see', RenamedTool('fs_look', FunctionTool('look')))"


def test_tools_can_be_filtered_by_name_or_predicate() -> None:
    tools = Toolset([look, write])
    assert list(tools.filter(["write"])) == ["write"]
    assert list(tools.filter(lambda each: each.spec.effect == "read")) == ["look"]
    more: list[Tool] = [MinimalTool()]
    assert list(tools + more) == ["look", "write", "bare"]
    with pytest.raises(InvalidInput, match="there is no tool 'loko', did you mean 'look'"):
        tools.filter(["loko"])
    with pytest.raises(InvalidInput, match="there is no tool 'x'"):
        tools.rename({"x": "y"})
