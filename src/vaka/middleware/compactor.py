"""Compact the context of an agent: first references in place of long old calls, then a summary of what came before.

The events are returned, not written. The summary is asked for before: a process that is killed meanwhile has written
nothing, and asks again.
"""

import asyncio
import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vaka.core.loop.blobs import restore_message
from vaka.core.loop.context import Turn
from vaka.core.loop.stop import TimeExceeded, TurnStopped, await_bounded
from vaka.core.ports.env import format_timestamp
from vaka.core.ports.model import Model, Prompt, context_window_of
from vaka.core.types.context import (
    Compaction,
    CompactionRequest,
    CompactionTrigger,
    ContextCompacted,
    ShortenedCall,
    media_note,
)
from vaka.core.types.errors import ConfigError, ContextTooLong, ModelError, VakaError, describe_failure
from vaka.core.types.event import Body
from vaka.core.types.ids import Digest
from vaka.core.types.message import Audio, Content, Document, Image, Message, Stored, Text, UserMessage
from vaka.core.types.monitor import Logged
from vaka.core.types.state import agent_key
from vaka.core.types.tokens import BYTES_PER_TOKEN, estimate_text_tokens, text_size
from vaka.middleware.compaction import (
    FULL_PART,
    context_tokens,
    conversation_of,
    estimate_newer_tokens,
    instruction_tokens,
)
from vaka.middleware.compaction_plan import LEAST_LONG_TEXT, ConversationPlanner, LongCall, Plan, is_long
from vaka.middleware.long_results import record_cut_text, shorten_part, shorten_texts
from vaka.middleware.summary import BadSummary, join_summaries, read_summary, summary_prompt

ModelSource = Callable[[], Model]
"""Returns a model. Raises a ``VakaError`` when it is not available."""

SUMMARY_HEADING = "Summary of the conversation so far. The messages before it were removed to save space.\n\n"
_LEFT_OUT = (
    "[{count} earlier messages of this conversation were left out to save space, without a summary: {reason}. "
    "The messages after this one are unchanged.]"
)
_LEFT_OUT_BEFORE = re.compile(r"\[(\d+) earlier messages of this conversation .*? are unchanged\.\]\s*", re.DOTALL)
MAX_REASON = 300
"""Characters of the reason that the model sees."""
_SHOWN_IN_PART = "[The message after this one is too long for the context and is shown in part.]"
GROWTH_PART = 0.05
"""The part of the window by which a context must grow in its turn after a compaction that was skipped or no help."""
_ASK_AGAIN_AT = "compaction.ask_again_at"
_COMPACTED_AFTER = "compaction.compacted_after"


class WrittenSummary(NamedTuple):
    """The summary that replaces the messages that are left out."""

    text: str = ""
    """The summary, or a text that says that there is none."""
    model: str = ""
    """The model that wrote it; ``""`` when none did."""
    failure: str = ""
    """Why none did, although one was asked."""


_NO_SUMMARY = WrittenSummary()


class Compactor:
    """Compacts conversations as its settings say; ``sources`` are the models to ask for a summary, in order."""

    def __init__(self, settings: Compaction, sources: Sequence[ModelSource]) -> None:
        self._settings, self._sources = settings, sources
        self.skipped = ""
        """Why the last compaction was skipped: by a middleware, or because no model wrote a summary for a caller."""

    async def shorten(self, turn: Turn, *, refused: bool = False) -> Sequence[Body]:
        """Compact the context because of its size; see ``ContextShortener``."""
        return await self.compact(turn, "auto", refused=refused)

    async def compact(
        self, turn: Turn, trigger: CompactionTrigger, instructions: str = "", *, refused: bool = False
    ) -> Sequence[Body]:
        """Return the events of a compaction, none if nothing can be left out or a middleware has skipped it.

        When no model writes a summary, messages are left out without one, unless a caller has asked for it.
        """
        if turn.log.deferred:
            await turn.log.append(turn.scope)  # a compaction names events by their position in the log
        window, before = context_window_of(turn.recipe.model), context_tokens(turn)
        if trigger == "auto" and not refused and before < self._compact_from(turn, window):
            return ()
        planner = self._make_planner(turn, window, before, refused=refused)
        plan = planner.plan_references() if trigger == "auto" and not refused else None
        plan = plan or planner.plan_summary(trigger)
        if plan is None:
            return ()
        settings = self._settings
        request = CompactionRequest(
            trigger=trigger,
            instructions=instructions,
            tokens=before,
            window=window,
            ratio=settings.ratio,
            keep_turns=settings.keep_turns,
        )
        wanted = request
        for middleware, method in turn.middleware.before_compaction:
            work = method(turn, wanted)
            wanted = await turn.middleware.call(middleware, turn, "before_compaction", work, CompactionRequest)
        if wanted.skip:
            return self._note_skip(turn, wanted.skip, before + int(GROWTH_PART * window))
        request = msgspec.structs.replace(request, instructions=wanted.instructions)
        written = await self._summarize(turn, planner, plan, request.instructions) if plan.has_summary else _NO_SUMMARY
        if trigger == "manual" and written.failure:  # nothing forces the messages out of the context
            self.skipped = f"no model wrote a summary: {written.failure}"
            return ()
        event, notes = await self._make_event(turn, planner, plan, request, written)
        turn.values[_COMPACTED_AFTER] = turn.scope.step
        for middleware, observe in turn.middleware.after_compaction:
            await turn.middleware.call(middleware, None, "after_compaction", observe(turn, event), type(None))
        if self._settings.rollout_dir:
            notes = [*notes, *await self._write_rollout(turn, event)]
        return [event, *notes]

    def _compact_from(self, turn: Turn, window: int) -> int:
        """Return the tokens from which on the context is compacted in this turn, besides the limit.

        A compaction does not help if the model has then reported as much as before, such as for a large document; the
        next one waits until the context has grown.
        """
        known, step = turn.state.contexts.get(agent_key(turn.path)), turn.values.get(_COMPACTED_AFTER)
        if known and step is not None and turn.scope.step <= step + 1 and self._settings.is_due(known.tokens, window):
            turn.values[_ASK_AGAIN_AT] = min(known.tokens + int(GROWTH_PART * window), int(FULL_PART * window))
        least: int = turn.values.get(_ASK_AGAIN_AT, 0)
        return least

    def _make_planner(self, turn: Turn, window: int, before: int, *, refused: bool) -> ConversationPlanner:
        settings, instructions = self._settings, instruction_tokens(turn)
        conversation = conversation_of(turn)
        estimated = instructions + estimate_newer_tokens(conversation)
        # The provider may count more tokens than the estimate; the limits are then lower by that factor.
        scale = min(max(before / max(estimated, 1), 1.0), 4.0)
        limit = settings.limit_in(window) / scale
        limit = max(int(min(limit, estimated / 2) if refused else limit), 1)
        readable = estimated if refused else window
        return ConversationPlanner(
            conversation, settings, limit=limit, instructions=instructions, readable_tokens=readable
        )

    def _note_skip(self, turn: Turn, reason: str, ask_again_at: int) -> Sequence[Body]:
        self.skipped, is_first = reason, _ASK_AGAIN_AT not in turn.values
        turn.values[_ASK_AGAIN_AT] = ask_again_at
        if not is_first:
            return ()
        return [Logged(level="info", message=f"the context was not compacted: {reason}")]

    async def _make_event(
        self, turn: Turn, planner: ConversationPlanner, plan: Plan, request: CompactionRequest, written: WrittenSummary
    ) -> tuple[ContextCompacted, list[Body]]:
        summary, model, failure = written
        calls = [await _shorten_call(turn, long) for long in plan.long_calls]
        opening = tuple([await self._keep_input(turn, content, plan) for content in plan.opening])
        last = len(plan.inputs) - 1
        inputs = tuple([await self._keep_input(turn, c, plan, media=at == last) for at, c in enumerate(plan.inputs)])
        if calls or any(isinstance(part, Stored) and part.cut for content in (*opening, *inputs) for part in content):
            record_cut_text(turn)
            await turn.log.append(turn.scope)
            if turn.state.turn is not None:
                await turn.load_sources()  # the next prompt has the tool that reads them
        instructions = instruction_tokens(turn)
        # The provider's count and the estimate differ by some factor, which holds for what is left, too.
        factor = request.tokens / max(instructions + planner.tokens, 1)
        after = round(factor * (instructions + plan.tokens + estimate_text_tokens(text_size(summary))))
        event = ContextCompacted(
            summary=summary,
            keep_from=(plan.keep_from or turn.state.seq + 1) if plan.has_summary else turn.state.window,
            before=request.tokens,
            after=after,
            trigger=request.trigger,
            instructions=request.instructions,
            model=model,
            opening=opening,
            inputs=inputs,
            calls=(*plan.carried_calls, *calls),
            media_from=plan.media_from,
            failure=failure,
            messages=len(planner.messages),
            kept_messages=len(planner.messages) - plan.left_out,
        )
        if not failure:
            return event, []
        text = f"the context was compacted without a summary, because no model wrote one: {failure}"
        return event, [Logged(level="warning", message=text)]

    async def _summarize(
        self, turn: Turn, planner: ConversationPlanner, plan: Plan, instructions: str
    ) -> WrittenSummary:
        if not plan.left_out:
            return WrittenSummary(_SHOWN_IN_PART)
        removed = planner.messages[: plan.cut]
        messages = [await _restore_input(turn, message) for message in removed]
        source_tokens = sum(planner.tokens_of(at) for at in range(plan.cut))
        failures: list[str] = []
        room = planner.readable_tokens
        tokens = planner.summary_tokens
        earlier = _earlier_summary(planner)
        timeout = self._attempt_seconds(turn)
        # A summary of a summary loses facts each time, so an earlier one stays while there is room for two.
        extends = bool(earlier) and not instructions and estimate_text_tokens(text_size(earlier)) <= tokens
        for number, source in enumerate(self._sources):
            if number and self._settings.retry_delay:
                await await_bounded(turn.env.clock.sleep(self._settings.retry_delay), None, turn.stop)
            try:
                model = source()
                readable = min(context_window_of(model), room)
                prompt = summary_prompt(messages, readable, tokens, instructions, extends=extends)
                answer = await _ask(turn, model, prompt, timeout)
                text = read_summary(answer, source_tokens)
                text = join_summaries(earlier, text) if extends else text
                return WrittenSummary(SUMMARY_HEADING + _clip(text, planner.limit // 3), model.name)
            except (ModelError, ConfigError, BadSummary, TimeExceeded, TurnStopped) as error:
                if turn.stop.reason is not None:
                    raise
                room = room // 2 if isinstance(error, ContextTooLong) else room
                failures.append(_describe(error, timeout))
        reason = "; ".join(dict.fromkeys(failures)) or "summaries are turned off"
        notice = _say_left_out(plan.cut - planner.head, reason, earlier)
        return WrittenSummary(_clip(notice, planner.limit // 3), failure="; ".join(failures))

    def _attempt_seconds(self, turn: Turn) -> float:
        """Return the seconds of one attempt; all of them end before the time of a middleware does."""
        most, attempts = turn.limits.middleware_timeout, max(len(self._sources), 1)
        return self._settings.timeout if most is None else min(self._settings.timeout, most / 2 / attempts)

    async def _keep_input(self, turn: Turn, content: Content, plan: Plan, *, media: bool = False) -> Content:
        """Return the content of a kept input; a long text is shown in part, and media become a note."""
        if plan.cut_inputs:
            content = await _shorten_content(turn, content, plan.longest_input, plan.longest_input // 2)
        return tuple([media_note(p) if isinstance(p, Image | Audio | Document) and not media else p for p in content])

    async def _write_rollout(self, turn: Turn, event: ContextCompacted) -> list[Body]:
        """Write a file about the compaction; an error becomes an event."""
        record = {
            "session_id": turn.session,
            "timestamp": format_timestamp(turn.env.clock.time()),
            "summary": event.summary,
            "original_messages": event.messages,
            "preserved_messages": event.kept_messages,
            "estimated_tokens_before": event.before,
            "estimated_tokens_after": event.after,
            "trigger": event.trigger,
        }
        text = turn.log.secrets.redact_data(json.dumps(record, ensure_ascii=False))
        name = f"{turn.session}_{record['timestamp']}".replace("-", "").replace(":", "")
        try:
            await asyncio.to_thread(_write_file, Path(self._settings.rollout_dir), name, text)
        except OSError as error:
            text = f"the compaction is not in {self._settings.rollout_dir}: {error.strerror or error}"
            return [Logged(level="warning", message=text)]
        return []


async def _ask(turn: Turn, model: Model, prompt: Prompt, timeout: float) -> str:
    """Return the answer of a model. Raises ``BadSummary`` also for an error that models do not have by their port.

    Otherwise a model of a program, with an error of its own library, would end each turn of a long conversation.
    """
    work = await_bounded(turn.ask_model(model, prompt), timeout, turn.stop)
    (answer,) = await asyncio.gather(work, return_exceptions=True)
    if isinstance(answer, str):
        return answer
    if isinstance(answer, Exception) and not isinstance(answer, VakaError | TimeExceeded | TurnStopped):
        raise BadSummary(describe_failure(answer)[1]) from answer
    raise answer


def _write_file(folder: Path, name: str, data: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-150:]
    target = folder / f"{safe}_{secrets.token_hex(4)}_compact.json"
    temporary = target.with_suffix(".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(data)
    temporary.replace(target)


async def _restore_input(turn: Turn, message: Message) -> Message:
    return await restore_message(turn.log.store.blobs, message) if isinstance(message, UserMessage) else message


def _earlier_summary(planner: ConversationPlanner) -> str:
    """Return the summary of the last compaction, which is not lost when a new one fails; ``""`` for none."""
    known = planner.compacted
    return known.summary.removeprefix(SUMMARY_HEADING) if known is not None else ""


def _say_left_out(count: int, reason: str, earlier: str) -> str:
    """Return the text for messages that were left out, and the last summary; one text counts all that were."""
    before = _LEFT_OUT_BEFORE.match(earlier)
    if before is not None:
        count, earlier = count + int(before[1]), earlier[before.end() :]
    reason = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}…"
    return "\n\n".join(filter(None, [_LEFT_OUT.format(count=count, reason=reason), earlier]))


def _describe(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeExceeded):
        return f"no answer within {timeout:g} s"
    is_described = isinstance(error, BadSummary) or not isinstance(error, Exception)
    return str(error) if is_described else describe_failure(error)[1]


def _clip(text: str, tokens: int) -> str:
    most = max(tokens, 64) * BYTES_PER_TOKEN
    return text if text_size(text) <= most else f"{text.encode()[:most].decode('utf-8', 'ignore')}\n[…]"


async def _shorten_call(turn: Turn, long: LongCall) -> ShortenedCall:
    blobs: list[Digest] = []

    async def shorten_value(value: Any) -> Any:
        kind: Any = value.__class__
        if kind is str and len(value) > max(long.length, LEAST_LONG_TEXT):
            stored = await shorten_part(turn, Text(text=value), long.length // 8, long.length // 8)
            blobs.append(stored.blob)
            return stored.preview
        if kind is dict:
            return {key: await shorten_value(item) for key, item in value.items()}
        return [await shorten_value(item) for item in value] if kind is list else value

    arguments: dict[str, Any] = await shorten_value(long.call.arguments)
    content = await _shorten_content(turn, long.result.content, long.length, long.length // 3)
    return ShortenedCall(
        call=long.call.id,
        arguments=arguments if blobs else None,
        blobs=tuple(blobs),
        content=content if content is not long.result.content else None,
    )


async def _shorten_content(turn: Turn, content: Content, length: int, head: int) -> Content:
    if not is_long(content, length):
        return content
    return await shorten_texts(turn, content, [p for p in content if isinstance(p, Text | Stored)], head, head // 2)
