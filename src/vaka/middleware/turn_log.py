"""Logging: one structured record for each middleware point, without secrets."""

import json
import logging
from collections.abc import Callable
from typing import Any, cast

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.ending import Outcome
from vaka.core.types.message import AssistantMessage, Content, ToolCall, ToolResult, text_of

LOGGER_NAME = "vaka.turn"
MAX_TEXT_LENGTH = 2_000
"""Longer texts are truncated."""


class Logging(Middleware):
    """Writes one record for each middleware point: session, agent, step, result and duration.

    ``sink`` gets each record as plain data; without it the logger ``vaka.turn`` gets it as JSON. Texts are left out
    unless ``content`` is set, and are then truncated. Secrets are redacted.
    """

    inherited = ("before_agent", "before_model", "after_model", "before_tool", "after_tool", "after_agent")

    def __init__(self, sink: Callable[[dict[str, Any]], None] | None = None, *, content: bool = False) -> None:
        self._sink, self._content = sink or _log_json, content
        self._key = f"logging.{id(self)}"

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        self._start_timer(turn, "agent")
        self._write_record(turn, "before_agent", input=self._describe_text(text_of(content)))
        return content

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        self._start_timer(turn, "model")
        self._write_record(turn, "before_model", model=turn.recipe.model.name, messages=len(prompt.messages))
        return prompt

    async def after_model(self, turn: Turn, message: AssistantMessage) -> AssistantMessage:
        self._write_record(
            turn,
            "after_model",
            model=message.model,
            stop=message.stop,
            calls=[call.name for call in message.calls],
            output=self._describe_text(message.text),
            duration_ms=self._elapsed_ms(turn, "model"),
        )
        return message

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall:
        self._start_timer(turn, call.id)
        arguments = self._describe_text(json.dumps(call.arguments, ensure_ascii=False, default=str))
        self._write_record(turn, "before_tool", tool=call.name, call=call.id, arguments=arguments)
        return call

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        self._write_record(
            turn,
            "after_tool",
            tool=call.name,
            call=call.id,
            failed=result.failed,
            reason=result.reason,
            output=self._describe_text(result.text),
            duration_ms=self._elapsed_ms(turn, call.id),
        )
        return result

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        usage = turn.budget.used
        self._write_record(
            turn,
            "after_agent",
            stop=outcome.stop,
            limit=outcome.limit,
            error=outcome.error,
            output=self._describe_text(outcome.text),
            duration_ms=self._elapsed_ms(turn, "agent"),
            input_tokens=usage.input,
            output_tokens=usage.output,
        )
        return outcome

    def _describe_text(self, text: str) -> dict[str, Any]:
        return {"characters": len(text), **({"text": text} if self._content else {})}

    def _write_record(self, turn: Turn, point: str, **more: Any) -> None:
        record: dict[str, Any] = {
            "time": turn.env.clock.time(),
            "point": point,
            "session": turn.session,
            "turn": turn.id,
            "agent": turn.agent,
            "path": list(turn.path),
            "step": turn.scope.step,
            **more,
        }
        self._sink(_truncate(turn.log.secrets.redact_data(record)))  # in this order: half a secret is not found

    def _start_timer(self, turn: Turn, name: str) -> None:
        turn.values.setdefault(self._key, {})[name] = turn.env.clock.monotonic()

    def _elapsed_ms(self, turn: Turn, name: str) -> int | None:
        start = turn.values.get(self._key, {}).pop(name, None)
        return None if start is None else round((turn.env.clock.monotonic() - start) * 1000)


def _truncate(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]}…"
    if isinstance(value, dict):
        return {key: _truncate(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_truncate(item) for item in cast("list[Any]", value)]
    return value


def _log_json(record: dict[str, Any]) -> None:
    logging.getLogger(LOGGER_NAME).info("%s", json.dumps(record, ensure_ascii=False, default=str))
