"""Tools from functions: names, specs, calls."""

from tests.tools.context import FakeContext
from vaka.core.ports.tool import ToolContext
from vaka.core.types.tool import Arguments
from vaka.tools import FunctionTool, tool


async def test_a_function_becomes_a_tool_and_stays_a_function() -> None:
    @tool(effect="read")
    async def add(context: ToolContext, left: int, right: int = 1) -> int:
        """Add two numbers."""
        context.emit("adding")
        return left + right

    context = FakeContext()
    arguments = add.parse('{"left": 2}')
    assert isinstance(add, FunctionTool)
    assert isinstance(arguments, Arguments)
    assert await add.call(context, arguments.value) == 3
    assert await add(context, 1, 1) == 2
    assert context.emitted == ["adding", "adding"]
    assert add.spec.effect == "read"
    assert add.spec.description == "Add two numbers."
    assert add.spec.strict
    assert add.spec.parameters == {
        "type": "object",
        "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 1}},
        "required": ["left"],
        "additionalProperties": False,
    }
