"""Logging: what a turn does, as lines a machine can read, without secrets."""

import json
import logging
from collections.abc import Callable
from typing import Any, cast

from vaka.core.loop.middleware import Middleware, Outcome
from vaka.core.loop.scope import Turn
from vaka.core.ports.model import Prompt
from vaka.core.types.content import Content, text_of
from vaka.core.types.message import AssistantMessage, ToolCall, ToolResult

NAME = "vaka.turn"
LONGEST = 2_000
"""Characters of one text that are logged."""


class Logging(Middleware):
    """Writes one record for each point: where it is, what happened, how long it took.

    ``sink`` gets each record as plain data; without it the logger ``vaka.turn`` gets it as JSON. What is said and
    returned is left out unless ``content`` is set, and is then cut. Secrets are taken out of all of it.
    """

    def __init__(self, sink: Callable[[dict[str, Any]], None] | None = None, *, content: bool = False) -> None:
        self._sink, self._content = sink or _logged, content
        self._key = f"logging.{id(self)}"

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Write that a turn begins."""
        self._begin(turn, "agent")
        self._write(turn, "before_agent", input=self._text(text_of(content)))
        return content

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        """Write what a model is asked."""
        self._begin(turn, "model")
        self._write(turn, "before_model", model=turn.recipe.model.name, messages=len(prompt.messages))
        return prompt

    async def after_model(self, turn: Turn, message: AssistantMessage) -> AssistantMessage:
        """Write what it answered."""
        self._write(
            turn, "after_model", model=message.model, stop=message.stop, calls=[call.name for call in message.calls],
            output=self._text(message.text), duration_ms=self._took(turn, "model"),
        )  # fmt: skip
        return message

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        """Write which tool is called."""
        self._begin(turn, call.id)
        arguments = self._text(json.dumps(call.arguments, ensure_ascii=False, default=str))
        self._write(turn, "before_tool", tool=call.name, call=call.id, arguments=arguments)
        return call

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        """Write what it came to."""
        self._write(
            turn, "after_tool", tool=call.name, call=call.id, failed=result.failed, reason=result.reason,
            output=self._text(result.text), duration_ms=self._took(turn, call.id),
        )  # fmt: skip
        return result

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        """Write how the turn ended."""
        usage = turn.spent
        self._write(
            turn, "after_agent", stop=outcome.stop, limit=outcome.limit, error=outcome.error,
            output=self._text(outcome.text), duration_ms=self._took(turn, "agent"),
            input_tokens=usage.input, output_tokens=usage.output,
        )  # fmt: skip
        return outcome

    def _text(self, text: str) -> dict[str, Any]:
        if not self._content:
            return {"characters": len(text)}
        return {"characters": len(text), "text": text}

    def _write(self, turn: Turn, point: str, **more: Any) -> None:
        record: dict[str, Any] = {
            "time": turn.env.clock.time(), "point": point, "session": turn.session, "turn": turn.id,
            "agent": turn.agent, "path": list(turn.path), "step": turn.at.step, **more,
        }  # fmt: skip
        cleaned: dict[str, Any] = turn.log.secrets.cleaned(record)
        self._sink(_cut(cleaned))

    def _times(self, turn: Turn) -> dict[str, float]:
        times: dict[str, float] = turn.values.setdefault(self._key, {})
        return times

    def _begin(self, turn: Turn, what: str) -> None:
        self._times(turn)[what] = turn.env.clock.monotonic()

    def _took(self, turn: Turn, what: str) -> int | None:
        begun = self._times(turn).pop(what, None)
        return None if begun is None else round((turn.env.clock.monotonic() - begun) * 1000)


def _cut(value: Any) -> Any:
    """Cut long texts, after secrets were taken out: half a secret would not be known as one."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_cut(item) for item in cast("list[Any]", value)]
    return value


def _logged(record: dict[str, Any]) -> None:
    logging.getLogger(NAME).info("%s", json.dumps(record, ensure_ascii=False, default=str))
