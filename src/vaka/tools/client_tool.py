"""Tools of the client: the caller of the turn runs them and gives their result."""

from typing import Any

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.keywords import suggest_keywords
from vaka.core.types.message import FailureReason, Text, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.tools.arguments import ArgumentReader
from vaka.tools.function import ToolReturn, sanitize_name

_NO_RESULT = "The client gave no result: it did not answer in time, or no client can be asked here."


class ClientTool:
    """A tool that the client runs, such as a button of an app or a function in a browser; implements ``Tool``.

    A call passes rules and approvals like any other. Then ``tool.started`` has its arguments, ``question.asked`` with
    the kind ``result`` is written, and the turn waits, also in another process after a crash, until
    ``session.answer_call(call, result)`` gives the result. With ``ask="suspend"`` the turn is suspended meanwhile, with
    ``ask="deny"`` the call fails.

    ``params`` is the JSON Schema of the arguments; ``expires_in`` the seconds after which the call fails, if any.
    """

    @suggest_keywords
    def __init__(
        self,
        name: str,
        description: str = "",
        params: dict[str, Any] | None = None,
        *,
        expires_in: float | None = None,
        layer: str = "code",
    ) -> None:
        """Raise ``InvalidInput`` for an empty name, a schema that is not one of an object, or an invalid time."""
        if not name:
            raise InvalidInput("client tool: name is required")
        parameters: dict[str, Any] = {"type": "object", "properties": {}, **(params or {})}
        if parameters["type"] != "object":
            raise InvalidInput(f"client tool {name}: params must be the JSON Schema of an object, with type 'object'")
        if expires_in is not None and not expires_in > 0:
            raise InvalidInput(f"client tool {name}: expires_in {expires_in!r} must be seconds above 0, or None")
        self.name, self._expires_in = name, expires_in
        self.spec = ToolSpec(
            name=sanitize_name(name),
            description=description or f"Run {name} in the client.",
            parameters=parameters,
            effect="resume",
            timeout=None,
            layer=layer,
        )
        self._reader = ArgumentReader(parameters)

    def __repr__(self) -> str:
        return f"ClientTool({self.name!r})"

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments that the model wrote, or what is wrong with them."""
        return self._reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        """Wait for the result of the client."""
        text = f"Run {self.spec.name} {msgspec.json.encode(arguments).decode()} and answer with its result."
        answer = await context.ask(text, expires_in=self._expires_in, kind="result")
        if answer is None:
            reason: FailureReason = "error" if self._expires_in is None else "timeout"
            return ToolResult(call=context.call, content=(Text(text=_NO_RESULT),), failed=True, reason=reason)
        return _read_result(context, answer)


def _read_result(context: ToolContext, answer: JSON) -> ToolReturn:
    """Return the result that the client gave; an answer in another form is the result itself."""
    try:
        result = msgspec.convert(answer, ToolResult)
    except msgspec.ValidationError:
        return answer
    return result if result.call == context.call else answer
