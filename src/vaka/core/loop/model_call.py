"""One model call: build the prompt, stream the answer, record the message and its tool calls."""

from contextlib import aclosing
from functools import partial

import msgspec

from vaka.core.loop.assemble import CallParser, MessageAssembly, match_call_refs
from vaka.core.loop.blobs import DigestedText, offload, store_prompt_texts
from vaka.core.loop.budget import Reservation, estimate_partial_usage
from vaka.core.loop.context import Turn
from vaka.core.loop.prompt import Conversation
from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.model import NoticeChunk, Prompt, RetryChunk
from vaka.core.types import monitor, progress
from vaka.core.types.errors import ContextTooLong, ModelRefused, StreamCut, describe_failure
from vaka.core.types.ids import Digest, MessageId
from vaka.core.types.message import AssistantMessage, Usage
from vaka.core.types.state import OpenCall, count_repeats


async def call_model(turn: Turn, *, asked_again: bool = False) -> list[OpenCall]:
    """Call the model, defer its message to the next write, and return the calls it made.

    A prompt that the provider refuses for its length is sent again once, after a middleware has shortened it.
    """
    prompt = await _build_prompt(turn)
    value = await turn.middleware.run_before_model(turn, prompt) if turn.middleware.before_model else prompt
    if isinstance(value, AssistantMessage):
        message = msgspec.structs.replace(value, id=MessageId(turn.env.ids.new_id("msg")))
        message = _call_parser(turn).parse_changed(message, ())
        return await _record_answer(turn, prompt, prompt, message, MessageAssembly(message.id, message.model))
    if turn.budget.is_limited:
        with turn.stop.cancellable():
            reservation = await turn.budget.reserve(turn.recipe.model, value)
    else:
        turn.stop.check()
        reservation = Reservation(value)
    try:
        return await _receive_answer(turn, prompt, reservation)
    except ContextTooLong:
        events = [] if asked_again else await turn.middleware.run_shorten_context(turn, refused=True)
        if not events:
            raise
        await turn.log.append(turn.scope, *events)
    finally:
        reservation.release()
    return await call_model(turn, asked_again=True)


async def _receive_answer(turn: Turn, planned: Prompt, reservation: Reservation) -> list[OpenCall]:
    assembly = await _stream_message(turn, reservation)
    reservation.settle(assembly.usage)
    try:
        parser = _call_parser(turn)
        message = assembly.build_message(parser)
        if turn.middleware.after_model:
            message = parser.parse_changed(await turn.middleware.run_after_model(turn, message), message.calls)
    except TurnStopped:
        _keep_partial_text(turn, assembly, reservation)
        raise
    except Exception as error:
        _discard_message(turn, assembly, reservation, str(error))
        raise
    calls = await _record_answer(turn, planned, reservation.prompt, message, assembly)
    if assembly.stop == "length" and not calls:
        raise TurnStopped("limit", "length")
    if message.stop == "refusal" and not calls:
        raise ModelRefused(f"the model of {turn.agent} refused to answer")
    return calls


async def _build_prompt(turn: Turn) -> Prompt:
    settings, agent_progress = turn.recipe.settings, turn.agent_progress
    conversation = turn.log.window.view(turn.path, partial(Conversation, turn.path))
    return Prompt(
        messages=await conversation.load_messages(turn.log.store.blobs, settings.recent),
        system=turn.system.text,
        tools=turn.tool_menu.specs,
        tool_choice=settings.tool_choice_after(agent_progress.tools),
        options=dict(settings.options),
        agent=turn.agent,
        path=turn.path,
        number=agent_progress.number,
        session=turn.session,
    )


async def _stream_message(turn: Turn, reservation: Reservation) -> MessageAssembly:
    assembly = _start_message(turn)
    try:
        with turn.stop.cancellable():
            async with aclosing(turn.recipe.model.stream(reservation.prompt)) as chunks:
                async for chunk in chunks:
                    match chunk:
                        case RetryChunk():
                            assembly = await _restart_message(turn, assembly, reservation, chunk)
                            turn.budget.check_retry(turn.recipe.model, reservation)
                        case NoticeChunk():
                            turn.log.defer(turn.scope, chunk.event)
                        case _:
                            if (delta := assembly.feed(chunk)) is not None:
                                if assembly.first_ms is None:
                                    assembly.first_ms = int((turn.env.clock.monotonic() - assembly.began) * 1000)
                                turn.log.publish_live(turn.scope, delta)
        if assembly.stop is None:
            raise StreamCut(f"the answer of {turn.recipe.model.name} was cut: it ended without its end marker")
        assembly.check_tool_choice(reservation.prompt.tool_choice)
    except TurnStopped:
        _keep_partial_text(turn, assembly, reservation)
        raise
    except Exception as error:
        _record_failure(turn, assembly, reservation, error)
        raise
    return assembly


def _start_message(turn: Turn) -> MessageAssembly:
    id, model = MessageId(turn.env.ids.new_id("msg")), turn.recipe.model.name
    turn.log.publish_live(turn.scope, progress.MessageStarted(message_id=id, model=model))
    return MessageAssembly(id, model, turn.env.clock.monotonic())


async def _restart_message(
    turn: Turn, assembly: MessageAssembly, reservation: Reservation, chunk: RetryChunk
) -> MessageAssembly:
    """Start a new message for the retry of a model wrapper; the usage of the failed attempt is recorded."""
    _discard_message(turn, assembly, reservation, chunk.message)
    failed = monitor.ModelFailed(
        model=chunk.model or turn.recipe.model.name,
        code=chunk.code,
        message=chunk.message,
        agent=turn.agent,
        message_id=assembly.message_id,
        retried=True,
    )
    await turn.log.append(turn.scope, failed)
    return _start_message(turn)


def _record_failure(turn: Turn, assembly: MessageAssembly, reservation: Reservation, error: Exception) -> None:
    code, message = describe_failure(error)
    failed = monitor.ModelFailed(
        model=assembly.model, code=code, message=message, agent=turn.agent, message_id=assembly.message_id
    )
    turn.log.defer(turn.scope, failed)
    _discard_message(turn, assembly, reservation, message)


def _discard_message(turn: Turn, assembly: MessageAssembly, reservation: Reservation, reason: str) -> None:
    """Withdraw the deltas that were published, and record the usage, which was spent all the same."""
    turn.log.defer(turn.scope, progress.MessageDiscarded(message_id=assembly.message_id, reason=reason))
    _record_usage(turn, assembly, reservation)


def _record_usage(turn: Turn, assembly: MessageAssembly, reservation: Reservation) -> None:
    usage = assembly.usage
    if assembly.stop is None:
        usage = estimate_partial_usage(turn.recipe.model, reservation.prompt, usage, assembly.character_count)
    if usage != Usage():
        turn.budget.defer_usage(_usage_event(turn, usage, assembly))


def _keep_partial_text(turn: Turn, assembly: MessageAssembly, reservation: Reservation) -> None:
    """Record the text of a message that a stop has cut, without its tool calls."""
    if text := assembly.text_parts():
        body = progress.MessageCompleted(
            message_id=assembly.message_id, content=text, model=turn.recipe.model.name, stop="cut", cut=True
        )
        turn.log.defer(turn.scope, body)
    elif assembly.has_content:
        turn.log.defer(turn.scope, progress.MessageDiscarded(message_id=assembly.message_id, reason="stopped"))
    _record_usage(turn, assembly, reservation)


def _call_parser(turn: Turn) -> CallParser:
    return CallParser(turn.tools, turn.path, turn.state.calls_made_by(turn.path))


async def _record_answer(
    turn: Turn, planned: Prompt, sent: Prompt, message: AssistantMessage, assembly: MessageAssembly
) -> list[OpenCall]:
    opened = _open_calls(turn, message) if message.calls else []
    content = message.content
    if turn.middleware.before_model or turn.middleware.after_model:
        content = match_call_refs(content, [open_call.call for open_call in opened])
    body = progress.MessageCompleted(
        message_id=message.id,
        content=await offload(turn.log, content),
        model=message.model,
        stop=message.stop,
        system=await _store_text(turn, DigestedText(sent.system)) if sent.system != planned.system else None,
        tools=await _store_text(turn, turn.recipe.prompt_parts.sent_menu(sent.tools).digested_text)
        if sent.tools != planned.tools
        else None,
    )
    used = _usage_event(turn, assembly.usage, assembly)
    turn.budget.defer_usage(body, used)
    if (observer := turn.recipe.answer_observer) is not None:
        await observer.observe(turn, sent, body, used, assembly.miss_price)
    if opened:
        called = [progress.ToolCalled(call=open_call.call, message_id=message.id) for open_call in opened]
        turn.log.defer(turn.scope, *called)
    return opened


def _open_calls(turn: Turn, message: AssistantMessage) -> list[OpenCall]:
    """Return the calls of an answer with their numbers, and how often each was repeated."""
    first = turn.state.calls_made_by(turn.path) + 1
    repeats = count_repeats(turn.agent_progress, message.calls)
    return [
        OpenCall(call=call, path=turn.path, message=message.id, step=turn.scope.step, number=number, streak=streak)
        for number, (call, (_, streak)) in enumerate(zip(message.calls, repeats, strict=True), first)
    ]


async def _store_text(turn: Turn, text: DigestedText) -> Digest | None:
    return (await store_prompt_texts(turn.log, [text], turn.env.stored_digests))[0].digest


def _usage_event(turn: Turn, usage: Usage, assembly: MessageAssembly) -> monitor.UsageRecorded:
    return monitor.UsageRecorded(
        model=assembly.called_model, usage=usage, agent=turn.agent, first_ms=assembly.first_ms or 0
    )
