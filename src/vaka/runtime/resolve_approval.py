"""Resolve an approval: check the answer and its edited arguments, store the rule it grants, resolve what it covers."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from vaka.config.claude_settings import add_allow_rules, remove_allow_rules, settings_file_for_scope
from vaka.core.ports.clock import Clock
from vaka.core.ports.store import PendingDecision, Store
from vaka.core.session.log import format_timestamp
from vaka.core.types.control import APPROVAL_SCOPES, ApprovalRequested, ApprovalResolved
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, Digest, SessionId
from vaka.core.types.message import ToolCall, replace_surrogates
from vaka.core.types.progress import MessageCompleted, StepStarted, TurnStarted
from vaka.core.types.tool import Grant, InvalidArguments, ParsedArguments, ToolSpec
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import EDIT_TOOLS, READ_TOOLS, builtin_name_of, spec_of
from vaka.runtime.options import ApprovalAnswer
from vaka.tools.arguments import ArgumentReader, check_json_data
from vaka.tools.builtin import TOOLS, find_builtin

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers


_MENU_SPAN = 256
"""Events before the question that are looked at first for what the model was told of its tools."""

_MENU_EVENTS = (TurnStarted, StepStarted, MessageCompleted)

ParseArguments: TypeAlias = Callable[[dict[str, Any]], ParsedArguments | InvalidArguments]


async def check_edited_arguments(
    drivers: "SessionDrivers", pending: PendingDecision, request: ApprovalRequested, edit: dict[str, Any]
) -> None:
    """Raise ``InvalidInput`` for arguments that the tool of a question would not take, as far as that is known here."""
    problem = check_json_data(edit)
    parse = None if problem else await _find_parser(drivers.store, pending, request)
    found = parse(edit) if parse is not None else problem
    if isinstance(found, InvalidArguments):
        raise InvalidInput(
            f"{request.call.name} does not take these arguments: {'; '.join(found.message.splitlines())}"
        )
    if drivers.secrets.json_forms and drivers.secrets.redact_data(edit) != edit:
        raise InvalidInput("these arguments have a secret in them, which no log keeps; the call would run without it")


async def _find_parser(store: Store, pending: PendingDecision, request: ApprovalRequested) -> ParseArguments | None:
    """Return what reads arguments as the tool that is asked about does."""
    known = _builtin_parser(request)
    if known is not None:
        return known
    for menu in await _find_tool_menus(store, pending):
        for spec in await _read_specs(store, menu):
            if spec.name == request.call.name and spec.digest == request.spec:
                return ArgumentReader(spec.parameters).read
    return None


def _builtin_parser(request: ApprovalRequested) -> ParseArguments | None:
    """Return how a tool that comes with vaka reads, if it is the very one: some take more than their schema says."""
    tool = find_builtin(request.call.name) if request.call.name in TOOLS else None
    if tool is None:
        return None
    return tool.parse if tool.spec.digest == request.spec else None


async def _find_tool_menus(store: Store, pending: PendingDecision) -> list[Digest]:
    """Return the names of what the model was told of its tools in the step that asks."""
    asks, span = pending.event, _MENU_SPAN
    place = (asks.turn, asks.step, asks.path)
    while True:
        after = max(pending.seq - span, 0)
        async with aclosing(store.events.read(pending.session, after=after, upto=pending.seq)) as events:
            told = [event async for event in events if isinstance(event.data, _MENU_EVENTS)]
        here = [event.data for event in told if (event.turn, event.step, event.path) == place]
        begun = any(isinstance(event.data, TurnStarted) and event.turn == asks.turn for event in told)
        if begun or not after or any(isinstance(body, StepStarted) for body in here):
            return [menu for body in here if (menu := getattr(body, "tools", None))]
        span *= 4


async def _read_specs(store: Store, menu: Digest) -> list[ToolSpec]:
    try:
        return msgspec.json.decode(await store.blobs.get(menu), type=list[ToolSpec])
    except (NotFound, Corrupt, msgspec.MsgspecError):
        return []  # erased, or without what was secret in it


MAX_ANSWER_BYTES = 1 << 20
"""Bytes an answer may have."""

MAX_TTL_SECONDS = 10 * 365 * 24 * 3600
"""Seconds for which something can be allowed in a session; for longer, it is allowed for the rest of it."""


async def resolve_approval(
    drivers: "SessionDrivers", pending: PendingDecision, decision: Literal["approve", "reject"], answer: ApprovalAnswer
) -> Event:
    """Bring an answer to a session and return the one that counts, which is the first.

    Raises ``InvalidInput`` for an answer that makes no sense and ``ConfigError`` when what it allows cannot be kept:
    then nothing was answered.
    """
    asked = pending.event.data
    if not isinstance(asked, ApprovalRequested):
        raise InvalidInput(f"{pending.id} is a question, which is answered and not approved")
    said = clean_resolution(_parse_answer(pending.id, decision, answer))
    until = _grant_expiry(drivers, asked, said, answer.get("ttl"))
    said = msgspec.structs.replace(validate_resolution(asked, said), source=decision_source(), until=until)
    if said.edit is not None:
        await check_edited_arguments(drivers, pending, asked, said.edit)
    if said.scope != "once" and is_expired(drivers.env.clock, asked):
        raise InvalidInput(f"{pending.id} has expired at {asked.expires}; it can no longer allow anything")
    path, added = await _persist_rules(asked, said)
    try:
        event = await drivers.offer(pending.session, said, pending.id)
    except BaseException:
        await _remove_persisted(path, added)
        raise
    if event.data != drivers.secrets.redact_struct(said):
        await _remove_persisted(path, added)
    elif said.rule:
        await _resolve_covered(drivers, pending.session, asked, said)
    return event


def is_expired(clock: Clock, request: ApprovalRequested) -> bool:
    """Return whether the time to decide is over: then whatever is said, it is a no."""
    return bool(request.expires) and format_timestamp(clock.time()) >= request.expires


def _parse_answer(
    approval: DecisionId, decision: Literal["approve", "reject"], answer: ApprovalAnswer
) -> ApprovalResolved:
    unknown = sorted(answer.keys() - ApprovalAnswer.__annotations__.keys())
    if unknown:
        raise InvalidInput(f"an answer has no {unknown[0]!r}; it may have {', '.join(ApprovalAnswer.__annotations__)}")
    return ApprovalResolved(
        approval=approval, decision=decision, message=answer.get("message", ""), edit=answer.get("edit"),
        scope=answer.get("scope", "once"), rule=answer.get("rule", ""), by=answer.get("by", ""),
    )  # fmt: skip


def _grant_expiry(
    drivers: "SessionDrivers", request: ApprovalRequested, resolution: ApprovalResolved, ttl: float | None
) -> str:
    """Return when what an answer allows for the session is no longer allowed."""
    if ttl is not None and resolution.scope != "session":
        raise InvalidInput("only what is allowed for the session can be allowed for some time")
    if ttl is not None and not 0 < ttl <= MAX_TTL_SECONDS:
        raise InvalidInput(f"ttl {ttl!r} must be seconds above zero, {MAX_TTL_SECONDS} at most")
    lasts = request.lasts if ttl is None and resolution.scope == "session" else ttl
    return format_timestamp(drivers.env.clock.time() + min(lasts, MAX_TTL_SECONDS)) if lasts is not None else ""


def clean_resolution(resolution: ApprovalResolved) -> ApprovalResolved:
    """Return an answer that the log can keep. Raises ``InvalidInput`` when it is too large."""
    resolution = msgspec.structs.replace(
        resolution,
        message=replace_surrogates(resolution.message),
        by=replace_surrogates(resolution.by),
        rule=replace_surrogates(resolution.rule),
    )
    try:
        size = len(msgspec.json.encode(resolution))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the arguments cannot be written as JSON: {error}") from error
    if size > MAX_ANSWER_BYTES:
        raise InvalidInput(f"an answer may have {MAX_ANSWER_BYTES} bytes as JSON; this one has {size}")
    return resolution


def validate_resolution(request: ApprovalRequested, resolution: ApprovalResolved) -> ApprovalResolved:
    """Return an answer with the rules it keeps. Raises ``InvalidInput`` when it is none that can be given."""
    if resolution.scope not in APPROVAL_SCOPES:
        raise InvalidInput(f"scope {resolution.scope!r} must be one of {', '.join(APPROVAL_SCOPES)}")
    if resolution.decision == "reject" and (
        resolution.edit is not None or resolution.scope != "once" or resolution.rule
    ):
        raise InvalidInput("a no has no scope, no rule and no edit")
    if resolution.decision == "approve" and request.decisions:
        wanted = "approve" if resolution.edit is None else "edit"
        if wanted not in request.decisions:
            raise InvalidInput(f"{request.approval} takes {' or '.join(allowed_decisions(request))}, not {wanted}")
    if resolution.scope == "once":
        if resolution.rule:
            raise InvalidInput("a rule is kept for the session, the project or the user; a yes for once keeps none")
        return resolution
    if resolution.scope not in request.allowed_scopes:
        raise InvalidInput(_scope_error(request, resolution.scope))
    rule = "\n".join(Grant(rule=resolution.rule or request.grant).rules)
    call = request.call if resolution.edit is None else msgspec.structs.replace(request.call, arguments=resolution.edit)
    check_rule(request, rule, call, resolution.scope)
    return msgspec.structs.replace(resolution, rule=rule)


def allowed_decisions(request: ApprovalRequested) -> list[str]:
    """Return what may be said of a call; no is always possible."""
    return [word for word in ("approve", "edit", "reject") if word in request.decisions or word == "reject"]


def check_rule(request: ApprovalRequested, rule: str, call: ToolCall, scope: str = "session") -> None:
    """Raise ``InvalidInput`` unless rules, one per line, can be kept for a scope and mean the call."""
    if not all(text.isprintable() for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} has characters that cannot be shown as they are, so it is not kept")
    folder = request.cwd if scope == "session" else str(settings_file_for_scope(scope, request.cwd, Path.home())[1])
    if folder != request.cwd and any(_is_folder_relative(text) for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} begins at /, which is {folder!r} there; write // before a whole path")
    if not _policy_for(request).covers(rule, call, spec_of(call.name), folder):
        raise InvalidInput(f"the rule {rule!r} does not mean this call of {call.name}; {request.grant!r} does")


def _is_folder_relative(rule: str) -> bool:
    """Return whether a rule is about a path that begins where the settings are."""
    tool, _, pattern = rule.partition("(")
    return builtin_name_of(tool) in READ_TOOLS | EDIT_TOOLS and pattern.startswith("/") and not pattern.startswith("//")


def _scope_error(request: ApprovalRequested, scope: str) -> str:
    if not request.grant:
        return f"{request.approval} can only be approved once: no rule can say that it is allowed"
    return (
        f"{request.approval} cannot be approved for the {scope}: {request.rule!r} would ask again all the same; "
        f"possible is {' or '.join(request.allowed_scopes)}"
    )


def decision_source() -> str:
    """Return where this is: machine, process, and terminal if there is one."""
    terminal = ""
    with contextlib.suppress(OSError, AttributeError):
        terminal = f", {os.ttyname(0)}"
    return f"{socket.gethostname()}, process {os.getpid()}{terminal}"


def _policy_for(request: ApprovalRequested) -> LayeredPolicy:
    """Return what knows what rules mean in the folder of a session."""
    return LayeredPolicy(cwd=request.cwd).in_folder(request.folder)


async def _persist_rules(request: ApprovalRequested, resolution: ApprovalResolved) -> tuple[Path | None, list[str]]:
    """Put the rules of an answer where they are kept; return the file and what was not in it."""
    if resolution.scope not in ("project", "user"):
        return None, []
    path, _ = settings_file_for_scope(resolution.scope, request.cwd, Path.home())
    return path, await asyncio.to_thread(add_allow_rules, path, Grant(rule=resolution.rule).rules)


async def _remove_persisted(path: Path | None, added: list[str]) -> None:
    """Somebody else was first: what was kept for an answer that does not count is taken out again."""
    if path is not None and added:
        await asyncio.to_thread(remove_allow_rules, path, added)


async def _resolve_covered(
    drivers: "SessionDrivers", session: SessionId, request: ApprovalRequested, resolution: ApprovalResolved
) -> None:
    """Answer what else waits in the session and is meant by the rules that were kept."""
    specs = {request.call.name: request.spec}
    for id in _find_covered(await drivers.store.sessions.decisions(session), request, resolution.rule, specs):
        why = f"covered by what was allowed with {request.approval}"
        body = ApprovalResolved(
            approval=id, decision="approve", message=why, by=resolution.by, source=resolution.source
        )
        await drivers.offer(session, body, id)


def _find_covered(
    pending_decisions: Iterable[PendingDecision], request: ApprovalRequested, rule: str, specs: dict[str, Digest]
) -> list[DecisionId]:
    found: list[DecisionId] = []
    for pending in pending_decisions:
        other = pending.event.data
        if not isinstance(other, ApprovalRequested) or other.approval == request.approval:
            continue
        if other.decisions and "approve" not in other.decisions:
            continue
        alike = other.rule_names <= request.rule_names and other.spec == specs.get(other.call.name, other.spec)
        if (
            alike
            and "session" in other.allowed_scopes
            and _policy_for(other).covers(rule, other.call, spec_of(other.call.name))
        ):
            found.append(other.approval)
    return found
