"""Composite tools of definitions: several tool calls, one after the other, with jq between them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.loop.subagent import open_script_journal, record_script_end
from vaka.core.ports.agent import AgentServices
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput, ScriptError
from vaka.core.types.ids import JSON, CallId, digest_of
from vaka.core.types.keywords import suggest_keywords
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.genx.kinds.jq import JqProgram, format_output
from vaka.tools.arguments import ArgumentReader
from vaka.tools.function import sanitize_name
from vaka.tools.schema.json_types import is_object

ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}


class ToolStep(NamedTuple):
    """One call of a composite tool."""

    id: str
    """The name under which later steps find the output."""
    tool: Any
    """A tool, a tool that needs services, an agent, or the name of a tool: one of the agent's, or a built-in one."""
    input_jq: str = ""
    """jq over ``{"input": …, "steps": {id: output}}`` that makes the arguments; default: the previous output."""


class CompositeTool:
    """Calls the tools of ``steps`` in order, and returns the result of the last. The first step gets the arguments.

    Each step is a tool call of its own, under the rules, hooks and approvals that apply to a call of a model. After a
    crash the tool continues with the first step that has no result. Without ``input_jq`` a step gets the previous
    output as its arguments; a tool whose only parameter is a text gets an output that is not an object as that text.
    """

    @suggest_keywords
    def __init__(
        self, name: str, *, steps: Sequence[ToolStep], description: str = "", mode: str = "seq", layer: str = "code"
    ) -> None:
        """Raise ``InvalidInput`` for an invalid option, ``ConfigError`` if jq is needed and not installed."""
        if not name:
            raise InvalidInput("composite tool: name is required")
        if mode not in ("", "seq"):
            raise InvalidInput(f"tool {name}: invalid composite mode {mode!r}; expected seq")
        _check_steps(name, steps)
        self.name, self.steps = name, tuple(steps)
        self.programs = {step.id: JqProgram(step.input_jq) for step in steps if step.input_jq}
        description = description or f"Run {', then '.join(step.id for step in steps)}."
        spec: ToolSpec | None = getattr(steps[0].tool, "spec", None)
        self.spec = ToolSpec(
            name=sanitize_name(name),
            description=description,
            parameters=spec.parameters if spec else ANY_ARGUMENTS,
            effect="resume",
            timeout=None,
            layer=layer,
        )

    def bind(self, services: AgentServices) -> "BoundCompositeTool":
        """Return the tool with its steps connected to the services of a runtime."""
        return BoundCompositeTool(self, services)

    def __repr__(self) -> str:
        return f"CompositeTool({self.name!r})"


class BoundCompositeTool:
    """A composite tool with the tools of its steps; implements ``Tool``."""

    def __init__(self, tool: CompositeTool, services: AgentServices) -> None:
        self._steps, self._programs = tool.steps, tool.programs
        self._own_tools: dict[str, Tool] = {}
        self._builtin_tools: dict[str, Tool] = {}
        """The tools of steps that name one; a tool of the agent with that name comes first."""
        self._tool_names: dict[str, str] = {}
        for step in tool.steps:
            self._tool_names[step.id] = self._add_tool(tool.name, step, services)
        first = {**self._builtin_tools, **self._own_tools}.get(self._tool_names[tool.steps[0].id])
        self.spec = tool.spec
        if first is not None:
            self.spec = msgspec.structs.replace(tool.spec, parameters=first.spec.parameters)
        self._reader = ArgumentReader(self.spec.parameters)
        self._digest = digest_of([[step.id, self._tool_names[step.id], step.input_jq] for step in tool.steps])

    def _add_tool(self, owner: str, step: ToolStep, services: AgentServices) -> str:
        """Build the tool of a step and return its name; a name that is unknown here may name an agent's tool."""
        if isinstance(step.tool, str):
            with suppress(InvalidInput):
                self._builtin_tools[step.tool] = services.build_tool(step.tool)
            return step.tool
        built = services.build_tool(step.tool)
        name = built.spec.name
        if name in self._own_tools and self._own_tools[name].spec != built.spec:
            raise InvalidInput(
                f"tool {owner}: two steps have different tools with the name {name!r}; rename one of them"
            )
        self._own_tools[name] = built
        return name

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments that the model wrote, or what is wrong with them."""
        return self._reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Call the steps that have no result yet and return the result of the last step, or of the failed step."""
        name = self.spec.name
        async with open_script_journal(context, name, self._digest, self._own_tools) as (journal, earlier_end):
            journal.record_start({})
            journal.turn.tools = {**self._builtin_tools, **journal.turn.tools}
            result = await self._run_steps(journal, arguments)
            if earlier_end is None:
                error = result.text if result.failed else ""
                await record_script_end(context, journal, name, None, error)
            return msgspec.structs.replace(result, call=context.call)

    async def _run_steps(self, journal: ScriptJournal, arguments: dict[str, Any]) -> ToolResult:
        outputs: dict[str, JSON] = {}
        value: JSON = arguments
        result = ToolResult(call=CallId(""))
        for number, step in enumerate(self._steps, 1):
            tool = journal.turn.tools.get(self._tool_names[step.id])
            if tool is None:
                return _failed_step(result, step, "get tool", f"there is no tool {self._tool_names[step.id]!r}")
            program = self._programs.get(step.id) if number > 1 else None
            try:
                if program is not None:
                    value = await program.first({"input": arguments, "steps": outputs})
            except ScriptError as error:
                return _failed_step(result, step, "apply jq", str(error))
            # The arguments are not part of the request: jq may read the clock.
            request = ScriptRequest.from_arguments(number, f"step {step.id}", [step.id])
            step_arguments = _arguments_for(tool, value, given=number == 1 or program is not None)
            result = await journal.call_tool(request, tool.spec.name, step_arguments)
            if result.failed:
                return _failed_step(result, step, "invoke", result.text or result.reason)
            value = outputs[step.id] = _output_of(result)
        return result


def _arguments_for(tool: Tool, value: JSON, *, given: bool) -> Any:
    """Return the arguments of a step; a value that is not an object becomes the only parameter of a text tool.

    So does an object that does not fit, unless it was ``given`` by the caller or by jq.
    """
    if is_object(value) and (given or not isinstance(tool.parse(value), InvalidArguments)):
        return value
    properties: dict[str, Any] = tool.spec.parameters.get("properties", {})
    if len(properties) == 1:
        name, schema = next(iter(properties.items()))
        if is_object(schema) and schema.get("type") == "string":
            return {name: format_output(value)}
    return value


def _output_of(result: ToolResult) -> JSON:
    """Return the output of a step: its data, its text parsed as JSON, or its text."""
    if result.value is not None:
        return result.value
    try:
        return msgspec.json.decode(result.text)
    except (msgspec.DecodeError, RecursionError):
        return result.text


def _failed_step(result: ToolResult, step: ToolStep, action: str, message: str) -> ToolResult:
    text = Text(text=f"step {step.id}: {action}: {message}")
    reason = result.reason if result.failed else "error"
    return ToolResult(call=result.call, content=(text,), failed=True, reason=reason)


def _check_steps(name: str, steps: Sequence[ToolStep]) -> None:
    if not steps:
        raise InvalidInput(f"tool {name}: steps is required: at least one step is required")
    seen: set[str] = set()
    for number, step in enumerate(steps):
        if not step.id:
            raise InvalidInput(f"tool {name}: step[{number}].id is required: step {number} missing id")
        if step.id in seen:
            raise InvalidInput(f'tool {name}: duplicate step id "{step.id}"')
        seen.add(step.id)
        if not step.tool:
            raise InvalidInput(f"tool {name}: step {step.id} must have tool.$ref or inline tool")
