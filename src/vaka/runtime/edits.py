"""Other arguments that a person gives a call: checked when they are given, wherever the schema can be found."""

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.core.ports.store import Pending, Store
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.ids import Digest
from vaka.core.types.progress import MessageCompleted, StepStarted, TurnStarted
from vaka.core.types.tool import Arguments, Problem, ToolSpec
from vaka.tools.arguments import check_plain
from vaka.tools.builtin import TOOLS, find
from vaka.tools.reader import Reader

if TYPE_CHECKING:
    from vaka.runtime.runtime import Runtime

_SPAN = 256
"""Events before the question that are looked at first for what the model was told of its tools."""

_TOLD = (TurnStarted, StepStarted, MessageCompleted)

Parse: TypeAlias = Callable[[dict[str, Any]], Arguments | Problem]


async def check_edit(runtime: "Runtime", pending: Pending, asked: ApprovalRequested, edit: dict[str, Any]) -> None:
    """Raise ``InvalidInput`` for arguments that the tool of a question would not take, as far as that is known here."""
    problem = check_plain(edit)
    parse = None if problem else await _parser(runtime.store, pending, asked)
    found = parse(edit) if parse is not None else problem
    if isinstance(found, Problem):
        raise InvalidInput(f"{asked.call.name} does not take these arguments: {'; '.join(found.message.splitlines())}")
    if runtime.secrets.forms and runtime.secrets.cleaned(edit) != edit:
        raise InvalidInput("these arguments have a secret in them, which no log keeps; the call would run without it")


async def _parser(store: Store, pending: Pending, asked: ApprovalRequested) -> Parse | None:
    """Return what reads arguments as the tool that is asked about does."""
    known = _shipped(asked)
    if known is not None:
        return known
    for menu in await _menus(store, pending):
        for spec in await _specs(store, menu):
            if spec.name == asked.call.name and spec.digest == asked.spec:
                return Reader(spec.parameters).read
    return None


def _shipped(asked: ApprovalRequested) -> Parse | None:
    """Return how a tool that comes with vaka reads, if it is the very one: some take more than their schema says."""
    tool = find(asked.call.name) if asked.call.name in TOOLS else None
    if tool is None:
        return None
    return tool.parse if tool.spec.digest == asked.spec else None


async def _menus(store: Store, pending: Pending) -> list[Digest]:
    """Return the names of what the model was told of its tools in the step that asks."""
    asks, span = pending.event, _SPAN
    place = (asks.turn, asks.step, asks.path)
    while True:
        after = max(pending.seq - span, 0)
        async with aclosing(store.events.read(pending.session, after=after, upto=pending.seq)) as events:
            told = [event async for event in events if isinstance(event.data, _TOLD)]
        here = [event.data for event in told if (event.turn, event.step, event.path) == place]
        begun = any(isinstance(event.data, TurnStarted) and event.turn == asks.turn for event in told)
        if begun or not after or any(isinstance(body, StepStarted) for body in here):
            return [menu for body in here if (menu := getattr(body, "tools", None))]
        span *= 4


async def _specs(store: Store, menu: Digest) -> list[ToolSpec]:
    try:
        return msgspec.json.decode(await store.blobs.get(menu), type=list[ToolSpec])
    except (NotFound, Corrupt, msgspec.MsgspecError):
        return []  # erased, or without what was secret in it
