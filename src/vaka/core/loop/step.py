"""One model call: the prompt, the stream, and what becomes of it."""

from contextlib import aclosing

import msgspec

from vaka.core.loop.assemble import UNFINISHED, Assembly, WrittenCall
from vaka.core.loop.budget import afford, broken_off, check
from vaka.core.loop.mail import mark
from vaka.core.loop.middleware import describe
from vaka.core.loop.prompt import messages
from vaka.core.loop.purse import Hold
from vaka.core.loop.scope import Kept, Menu, Turn
from vaka.core.loop.stop import Stopped
from vaka.core.loop.texts import keep, offload, restore
from vaka.core.ports.model import NoticeChunk, Prompt, RetryChunk
from vaka.core.session.state import OpenCall, call_id, streaks
from vaka.core.types import monitor, progress
from vaka.core.types.content import CallRef, Content, Part, Reasoning
from vaka.core.types.errors import StreamCut
from vaka.core.types.ids import MessageId
from vaka.core.types.message import AssistantMessage, ToolCall
from vaka.core.types.tool import Arguments, ToolChoice
from vaka.core.types.usage import Usage


def steered(turn: Turn) -> tuple[str, ...]:
    """Return the inputs that join the turn with its next step.

    None where before_agent looks at what is said: there they wait for a turn of their own, so that nothing passes it.
    """
    if turn.path or turn.chain.has("before_agent"):
        return ()
    return tuple([queued.key for queued in turn.state.inputs.values() if queued.policy == "steer"])


async def begin(turn: Turn) -> None:
    """Write down that a model call begins, and what it will see; inputs that came meanwhile join it."""
    number = turn.lane.step + 1
    turn.step(number)
    joining = steered(turn)
    started = progress.StepStarted(
        agent=turn.agent, number=number, model=turn.recipe.model.name, inputs=joining,
        system=await keep(turn, turn.recipe.system), tools=await keep(turn, turn.recipe.menu(turn.env.policy).text),
    )  # fmt: skip
    await turn.log.append(turn.at, *mark(turn), started)


async def ask(turn: Turn) -> list[OpenCall]:
    """Ask the model; leave its answer for the next write and return the calls it made."""
    prompt = await _prompt(turn)
    value = await turn.chain.before_model(turn, prompt)
    if isinstance(value, AssistantMessage):
        said = msgspec.structs.replace(value, id=MessageId(turn.env.ids.new("msg")))
        return await _finish(turn, prompt, prompt, _reread(turn, said, ()), Usage())
    with turn.stop.region():
        hold = await afford(turn, turn.recipe.model, value)
    try:
        return await _answer(turn, prompt, hold)
    finally:
        hold.release()


async def _answer(turn: Turn, planned: Prompt, hold: Hold) -> list[OpenCall]:
    assembly = await _stream(turn, hold)
    hold.settle(assembly.usage)
    try:
        whole = _message(turn, assembly)
        said = _reread(turn, await turn.chain.after_model(turn, whole), whole.calls)
    except Stopped:
        _cut(turn, assembly, hold)
        raise
    except Exception as error:
        _discard(turn, assembly, hold, str(error))
        raise
    calls = await _finish(turn, planned, hold.prompt, said, assembly.usage)
    if assembly.stop == "length" and not calls:
        raise Stopped("limit", "length")
    return calls


async def _prompt(turn: Turn) -> Prompt:
    recipe, settings = turn.recipe, turn.recipe.settings
    said = await restore(turn.log.store.blobs, messages(turn.log.window.at(turn.path), turn.path))
    return Prompt(
        messages=said, system=recipe.instructions, tools=recipe.menu(turn.env.policy).specs,
        tool_choice=_choice(turn), options=dict(settings.options), agent=turn.agent, path=turn.path,
        number=turn.lane.number, session=turn.session,
    )  # fmt: skip


def _choice(turn: Turn) -> ToolChoice:
    """Return what the agent wants of its tools: a call that was wanted and came is not wanted for ever."""
    choice = turn.recipe.settings.tool_choice
    return choice if choice == "none" or not turn.lane.tools else "auto"


async def _stream(turn: Turn, hold: Hold) -> Assembly:
    assembly = _new(turn)
    try:
        with turn.stop.region():
            async with aclosing(turn.recipe.model.stream(hold.prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, RetryChunk):
                        assembly = await _again(turn, assembly, hold, chunk)
                        check(turn, turn.recipe.model, hold)
                        continue
                    if isinstance(chunk, NoticeChunk):
                        turn.log.later(turn.at, chunk.event)
                        continue
                    shown = assembly.feed(chunk)
                    if shown is not None:
                        turn.log.live(turn.at, shown)
        if assembly.stop is None:
            raise StreamCut(f"the answer of {turn.recipe.model.name} was cut: it ended without its end marker")
    except Stopped:
        _cut(turn, assembly, hold)
        raise
    except Exception as error:
        _failed(turn, assembly, hold, error)
        raise
    return assembly


def _new(turn: Turn) -> Assembly:
    assembly = Assembly(MessageId(turn.env.ids.new("msg")))
    turn.log.live(turn.at, progress.MessageStarted(message_id=assembly.message_id, model=turn.recipe.model.name))
    return assembly


async def _again(turn: Turn, assembly: Assembly, hold: Hold, chunk: RetryChunk) -> Assembly:
    """A wrapper tries once more: what was shown does not count, but what it cost does."""
    _discard(turn, assembly, hold, chunk.message)
    await turn.log.append(
        turn.at,
        monitor.ModelFailed(
            model=chunk.model or turn.recipe.model.name, code=chunk.code, message=chunk.message, agent=turn.agent,
            message_id=assembly.message_id, retried=True,
        ),
    )  # fmt: skip
    return _new(turn)


def _failed(turn: Turn, assembly: Assembly, hold: Hold, error: Exception) -> None:
    code, message = describe(error)
    turn.log.later(
        turn.at,
        monitor.ModelFailed(
            model=assembly.model or turn.recipe.model.name, code=code, message=message, agent=turn.agent,
            message_id=assembly.message_id,
        ),
    )  # fmt: skip
    _discard(turn, assembly, hold, message)


def _discard(turn: Turn, assembly: Assembly, hold: Hold, reason: str) -> None:
    """Nobody shall count what was shown; what it cost was spent all the same."""
    turn.log.later(turn.at, progress.MessageDiscarded(message_id=assembly.message_id, reason=reason))
    _spent(turn, assembly, hold)


def _spent(turn: Turn, assembly: Assembly, hold: Hold) -> None:
    usage = assembly.usage
    if assembly.stop is None:
        usage = broken_off(turn.recipe.model, hold.prompt, usage, assembly.size)
    if usage != Usage():
        turn.log.later(turn.at, _usage(turn, usage, assembly.model))


def _cut(turn: Turn, assembly: Assembly, hold: Hold) -> None:
    """A message cut short keeps its text and loses its tool calls."""
    text = tuple(part for part in assembly.parts() if not isinstance(part, WrittenCall | Reasoning))
    if text:
        body = progress.MessageCompleted(
            message_id=assembly.message_id, content=text, model=turn.recipe.model.name, stop="cut", cut=True
        )
        turn.log.later(turn.at, body)
    elif assembly.shown:
        turn.log.later(turn.at, progress.MessageDiscarded(message_id=assembly.message_id, reason="stopped"))
    _spent(turn, assembly, hold)


def _message(turn: Turn, assembly: Assembly) -> AssistantMessage:
    content: list[Part] = []
    calls: list[ToolCall] = []
    made = turn.state.made(turn.path)
    for part in assembly.parts():
        if isinstance(part, WrittenCall):
            call = _read(turn, part, made + len(calls) + 1)
            if assembly.stop in UNFINISHED:  # no call runs from an unfinished message
                call = msgspec.structs.replace(call, raw=part.arguments, arguments={}, truncated=True)
            calls.append(call)
            content.append(CallRef(id=call.id))
        else:
            content.append(part)
    return AssistantMessage(
        id=assembly.message_id, content=tuple(content), calls=tuple(calls),
        model=assembly.model or turn.recipe.model.name, stop=assembly.stop or "",
    )  # fmt: skip


def _read(turn: Turn, written: WrittenCall, number: int) -> ToolCall:
    """Read the arguments a model wrote; what cannot be read is kept as it was."""
    id = call_id(turn.path, number)
    tool = turn.tools.get(written.name)
    parsed = tool.parse(written.arguments) if tool else None
    if isinstance(parsed, Arguments):
        raw = written.arguments if parsed.repaired else ""
        repaired = "; ".join(filter(None, (written.repaired, parsed.repaired)))
        return ToolCall(
            id=id, name=written.name, arguments=parsed.value, raw=raw, repaired=repaired,
            provider_id=written.provider_id,
        )  # fmt: skip
    return ToolCall(id=id, name=written.name, raw=written.arguments or "{}", provider_id=written.provider_id)


def _reread(turn: Turn, said: AssistantMessage, known: tuple[ToolCall, ...]) -> AssistantMessage:
    """Return a message whose calls are all read: those that middleware made or changed, too."""
    if said.calls == known:
        return said
    made, calls = turn.state.made(turn.path), list[ToolCall]()
    for number, call in enumerate(said.calls, made + 1):
        written = WrittenCall(call.name, call.raw or msgspec.json.encode(call.arguments).decode(), call.provider_id)
        calls.append(call if call in known else _read(turn, written, number))
    return msgspec.structs.replace(said, calls=tuple(calls))


async def _finish(turn: Turn, planned: Prompt, sent: Prompt, said: AssistantMessage, usage: Usage) -> list[OpenCall]:
    made = turn.state.made(turn.path)
    calls = [
        msgspec.structs.replace(call, id=call_id(turn.path, made + number))
        for number, call in enumerate(said.calls, start=1)
    ]
    body = progress.MessageCompleted(
        message_id=said.id, content=await offload(turn, _with_calls(said.content, calls)), model=said.model,
        stop=said.stop,
        system=await keep(turn, Kept(sent.system)) if sent.system != planned.system else None,
        tools=await keep(turn, Menu(sent.tools).text) if sent.tools != planned.tools else None,
    )  # fmt: skip
    turn.log.later(turn.at, body, _usage(turn, usage, said.model))
    turn.log.later(turn.at, *(progress.ToolCalled(call=call, message_id=said.id) for call in calls))
    return [
        OpenCall(call=call, path=turn.path, message=said.id, step=turn.at.step, number=made + number, streak=streak)
        for number, (call, (_, streak)) in enumerate(zip(calls, streaks(turn.lane, calls), strict=True), start=1)
    ]


def _with_calls(content: Content, calls: list[ToolCall]) -> Content:
    """Make the content name exactly these calls: middleware may have added or removed some."""
    ids = {call.id for call in calls}
    kept = tuple(part for part in content if not isinstance(part, CallRef) or part.id in ids)
    named = {part.id for part in kept if isinstance(part, CallRef)}
    return kept + tuple(CallRef(id=call.id) for call in calls if call.id not in named)


def _usage(turn: Turn, usage: Usage, model: str = "") -> monitor.UsageRecorded:
    return monitor.UsageRecorded(model=model or turn.recipe.model.name, usage=usage, agent=turn.agent)
