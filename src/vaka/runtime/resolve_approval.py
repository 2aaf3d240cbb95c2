"""Resolve an approval: check the answer and its edited arguments, store the rule it grants, resolve what it covers."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from vaka.config.rule_files import settings_file_for_scope
from vaka.config.settings import ConfigContext
from vaka.core.ports.env import Clock, format_timestamp
from vaka.core.ports.store import PendingDecision, SessionQuery, Store
from vaka.core.types.control import (
    APPROVAL_SCOPES,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    QuestionAnswered,
    key_of,
)
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, Digest, SessionId
from vaka.core.types.message import ToolCall, replace_surrogates
from vaka.core.types.progress import MessageCompleted, StepStarted, TurnStarted
from vaka.core.types.tool import Grant, InvalidArguments, ParsedArguments, ToolSpec
from vaka.feature import require_feature
from vaka.policy.command_access import as_asked
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import EDIT_TOOLS, READ_TOOLS, builtin_name_of, spec_of
from vaka.runtime.options import ApprovalAnswer
from vaka.runtime.remembered_rules import RememberedRule
from vaka.tools.arguments import ArgumentReader, check_json_data
from vaka.tools.builtin import TOOLS, find_builtin

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers


_MENU_SPAN = 256
"""The number of events before the approval that are searched first for the tool menu of the model."""

_MENU_EVENTS = (TurnStarted, StepStarted, MessageCompleted)

ParseArguments: TypeAlias = Callable[[dict[str, Any]], ParsedArguments | InvalidArguments]


async def check_edited_arguments(
    drivers: "SessionDrivers", pending: PendingDecision, request: ApprovalRequested, edit: dict[str, Any]
) -> None:
    """Raise ``InvalidInput`` for edited arguments that the tool would reject, if its schema is known here."""
    problem = check_json_data(edit)
    parse = None if problem else await _find_parser(drivers.store, pending, request)
    parsed = parse(edit) if parse is not None else problem
    if isinstance(parsed, InvalidArguments):
        raise InvalidInput(
            f"{request.call.name} does not take these arguments: {'; '.join(parsed.message.splitlines())}"
        )
    if drivers.secrets.redact_data(edit) != edit:
        raise InvalidInput("these arguments contain a secret, which the log redacts; the call would run without it")


async def _find_parser(store: Store, pending: PendingDecision, request: ApprovalRequested) -> ParseArguments | None:
    """Return the argument parser of the tool that the approval is about."""
    known = _builtin_parser(request)
    if known is not None:
        return known
    for menu in await _find_tool_menus(store, pending):
        for spec in await _read_specs(store, menu):
            if spec.name == request.call.name and spec.digest == request.spec:
                return ArgumentReader(spec.parameters).read
    return None


def _builtin_parser(request: ApprovalRequested) -> ParseArguments | None:
    """Return the parser of a built-in tool with the same spec; some accept more than their schema states."""
    tool = find_builtin(request.call.name) if request.call.name in TOOLS else None
    if tool is None:
        return None
    return tool.parse if tool.spec.digest == request.spec else None


async def _find_tool_menus(store: Store, pending: PendingDecision) -> list[Digest]:
    """Return the digests of the tool menus that the model got in the step of the approval."""
    request, span = pending.event, _MENU_SPAN
    scope = (request.turn, request.step, request.path)
    while True:
        after = max(pending.seq - span, 0)
        async with aclosing(store.events.read(pending.session, after=after, upto=pending.seq)) as events:
            menu_events = [event async for event in events if isinstance(event.data, _MENU_EVENTS)]
        bodies = [event.data for event in menu_events if (event.turn, event.step, event.path) == scope]
        has_start = any(isinstance(event.data, TurnStarted) and event.turn == request.turn for event in menu_events)
        if has_start or not after or any(isinstance(body, StepStarted) for body in bodies):
            return [menu for body in bodies if (menu := getattr(body, "tools", None))]
        span *= 4


async def _read_specs(store: Store, menu: Digest) -> list[ToolSpec]:
    try:
        return msgspec.json.decode(await store.blobs.get(menu), type=list[ToolSpec])
    except (NotFound, Corrupt, msgspec.MsgspecError):
        return []  # the blob was erased or redacted


MAX_SEARCHED_SESSIONS = 200
"""The number of sessions, the last changed first, that are searched for a decision which is no longer open."""

SETTLING_TYPES = (ApprovalResolved, ApprovalExpired, QuestionAnswered)

MAX_ANSWER_BYTES = 1 << 20
"""The size limit of a decision, in bytes of JSON."""

MAX_TTL_SECONDS = 10 * 365 * 24 * 3600
"""The longest time limit of a grant for the session, in seconds."""


async def resolve_approval(
    drivers: "SessionDrivers", pending: PendingDecision, decision: Literal["approve", "reject"], answer: ApprovalAnswer
) -> Event:
    """Offer a decision to the session and return the event of the first one, which counts.

    Raises ``InvalidInput`` for a decision that is not possible, and ``ConfigError`` when its rules cannot be stored.
    The approval then stays open.
    """
    request = pending.event.data
    if not isinstance(request, ApprovalRequested):
        raise InvalidInput(f"{pending.id} is a question: answer it, it cannot be approved or rejected")
    resolution = clean_resolution(_parse_answer(pending.id, decision, answer))
    until = _grant_expiry(drivers, request, resolution, answer.get("ttl"))
    resolution = validate_resolution(request, resolution, in_files=drivers.remembered_rules is None)
    resolution = msgspec.structs.replace(resolution, source=decision_source(), until=until)
    if resolution.edit is not None:
        await check_edited_arguments(drivers, pending, request, resolution.edit)
    if resolution.scope != "once" and is_expired(drivers.env.clock, request):
        raise InvalidInput(f"{pending.id} has expired at {request.expires}; it can no longer grant a rule")
    remove_rules = await _persist_rules(drivers, pending, request, resolution)
    try:
        event = await drivers.offer(pending.session, resolution, pending.id)
    except BaseException:
        await remove_rules()
        raise
    if event.data != drivers.secrets.redact_struct(resolution):
        await remove_rules()
    elif resolution.rule:
        await _resolve_covered(drivers, pending.session, request, resolution)
    return event


async def find_settlement(store: Store, decision: str) -> Event | None:
    """Return the event that settled an approval or question, among the sessions that changed last."""
    page = await store.sessions.list(SessionQuery(limit=MAX_SEARCHED_SESSIONS))
    for info in page.sessions:
        async with aclosing(store.events.read(info.id)) as events:
            async for event in events:
                if isinstance(event.data, SETTLING_TYPES) and key_of(event.data) == decision:
                    return event
    return None


def is_expired(clock: Clock, request: ApprovalRequested) -> bool:
    """Return whether the approval has expired; any later decision counts as a rejection."""
    return bool(request.expires) and format_timestamp(clock.time()) >= request.expires


def _parse_answer(
    approval: DecisionId, decision: Literal["approve", "reject"], answer: ApprovalAnswer
) -> ApprovalResolved:
    unknown = sorted(answer.keys() - ApprovalAnswer.__annotations__.keys())
    if unknown:
        raise InvalidInput(f"an answer has no {unknown[0]!r}; it may have {', '.join(ApprovalAnswer.__annotations__)}")
    return ApprovalResolved(
        approval=approval,
        decision=decision,
        message=answer.get("message", ""),
        edit=answer.get("edit"),
        scope=answer.get("scope", "once"),
        rule=answer.get("rule", ""),
        by=answer.get("by", ""),
    )


def _grant_expiry(
    drivers: "SessionDrivers", request: ApprovalRequested, resolution: ApprovalResolved, ttl: float | None
) -> str:
    """Return the timestamp at which a grant for the session expires, ``""`` for never."""
    if ttl is not None and resolution.scope != "session":
        raise InvalidInput("ttl applies only to the scope session")
    if ttl is not None and not 0 < ttl <= MAX_TTL_SECONDS:
        raise InvalidInput(f"ttl {ttl!r} must be a number of seconds above 0 and at most {MAX_TTL_SECONDS}")
    lasts = request.lasts if ttl is None and resolution.scope == "session" else ttl
    return format_timestamp(drivers.env.clock.time() + min(lasts, MAX_TTL_SECONDS)) if lasts is not None else ""


def clean_resolution(resolution: ApprovalResolved) -> ApprovalResolved:
    """Return a decision that can be stored as JSON. Raises ``InvalidInput`` when it is too large."""
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
        raise InvalidInput(f"a decision may have at most {MAX_ANSWER_BYTES} bytes as JSON; this one has {size}")
    return resolution


def validate_resolution(
    request: ApprovalRequested, resolution: ApprovalResolved, *, in_files: bool = True
) -> ApprovalResolved:
    """Return a decision with the rules it grants. Raises ``InvalidInput`` when the request does not permit it.

    ``in_files``: whether the rules for the project and the user are stored in settings files.
    """
    if resolution.scope not in APPROVAL_SCOPES:
        raise InvalidInput(f"scope {resolution.scope!r} must be one of {', '.join(APPROVAL_SCOPES)}")
    if resolution.decision == "reject" and (
        resolution.edit is not None or resolution.scope != "once" or resolution.rule
    ):
        raise InvalidInput("a rejection takes no scope, rule or edit")
    if resolution.decision == "approve" and request.decisions:
        wanted = "approve" if resolution.edit is None else "edit"
        if wanted not in request.decisions:
            raise InvalidInput(f"{request.approval} takes {' or '.join(allowed_decisions(request))}, not {wanted}")
    if resolution.scope == "once":
        if resolution.rule:
            raise InvalidInput("a rule needs the scope session, project or user; an approval for once grants none")
        return resolution
    if resolution.scope not in request.allowed_scopes:
        raise InvalidInput(_scope_error(request, resolution.scope))
    rule = "\n".join(Grant(rule=resolution.rule or request.grant).rules)
    call = request.call if resolution.edit is None else msgspec.structs.replace(request.call, arguments=resolution.edit)
    check_rule(request, rule, call, resolution.scope if in_files or resolution.scope == "user" else "session")
    return msgspec.structs.replace(resolution, rule=rule)


def allowed_decisions(request: ApprovalRequested) -> list[str]:
    """Return the decisions that a request permits; ``reject`` is always one of them."""
    return [word for word in ("approve", "edit", "reject") if word in request.decisions or word == "reject"]


def check_rule(request: ApprovalRequested, rule: str, call: ToolCall, scope: str = "session") -> None:
    """Raise ``InvalidInput`` unless rules, one per line, can be stored for a scope and match the call."""
    if not all(text.isprintable() for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} contains unprintable characters, so it is not stored")
    folder = request.cwd if scope == "session" else str(settings_file_for_scope(scope, request.cwd, Path.home())[1])
    if folder != request.cwd and any(_is_folder_relative(text) for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} begins at /, which is {folder!r} there; write // before a whole path")
    if not _policy_for(request).covers(rule, as_asked(call, request.layer), spec_of(call.name), folder):
        raise InvalidInput(f"the rule {rule!r} does not mean this call of {call.name}; {request.grant!r} does")


def _is_folder_relative(rule: str) -> bool:
    """Return whether a rule has a path that is relative to the folder of the settings."""
    tool, _, pattern = rule.partition("(")
    return builtin_name_of(tool) in READ_TOOLS | EDIT_TOOLS and pattern.startswith("/") and not pattern.startswith("//")


def _scope_error(request: ApprovalRequested, scope: str) -> str:
    if not request.grant:
        return f"{request.approval} can only be approved once: no rule can match it"
    return (
        f"{request.approval} cannot be approved for the {scope}: {request.rule!r} would ask again all the same; "
        f"possible is {' or '.join(request.allowed_scopes)}"
    )


def decision_source() -> str:
    """Return the host name, process id and terminal of this process."""
    terminal = ""
    with contextlib.suppress(OSError, AttributeError):
        terminal = f", {os.ttyname(0)}"
    return f"{socket.gethostname()}, process {os.getpid()}{terminal}"


def _policy_for(request: ApprovalRequested) -> LayeredPolicy:
    """Return a policy that matches rules in the folder of the request."""
    return LayeredPolicy(cwd=request.cwd).in_folder(request.folder)


async def _persist_rules(
    drivers: "SessionDrivers", pending: PendingDecision, request: ApprovalRequested, resolution: ApprovalResolved
) -> Callable[[], Awaitable[None]]:
    """Store the rules for the project or the user, in the store or in the settings file of the scope.

    Returns the function that removes them again, for a decision that does not count because another one was first.
    """
    scope, rules = resolution.scope, drivers.remembered_rules
    if scope not in ("project", "user"):
        return _remove_nothing
    if rules is not None:
        owner = await rules.find_owner(pending.session)
        rule = RememberedRule(
            id=drivers.env.ids.new_id("rule"),
            rule=resolution.rule,
            scope=scope,
            approval=pending.id,
            cwd=request.cwd if scope == "project" else "",
            by=resolution.by,
            created=drivers.timestamp(),
        )
        is_new = await rules.add(owner, rule)

        async def remove_stored() -> None:
            await rules.remove(owner, rule.id)

        return remove_stored if is_new else _remove_nothing
    require_feature("project", f"the scope {scope!r}")
    from vaka.project.approved_rules import store_approved_rules
    from vaka.project.claude_writer import add_allow_rules, remove_allow_rules

    path, _ = settings_file_for_scope(scope, request.cwd, Path.home())
    granted = Grant(rule=resolution.rule).rules
    shells = drivers.env.world.shells if drivers.env.world_created else None
    if shells is not None:
        shells.announce(str(path))
    if scope == "project":
        context = ConfigContext(cwd=Path(request.cwd), home=Path.home(), environ=os.environ)
        stored = await asyncio.to_thread(store_approved_rules, path, granted, context)
        return partial(asyncio.to_thread, stored.remove)
    added = await asyncio.to_thread(add_allow_rules, path, granted)

    async def remove_from_file() -> None:
        await asyncio.to_thread(remove_allow_rules, path, added)

    return remove_from_file if added else _remove_nothing


async def _remove_nothing() -> None:
    """Keep the rules that were there before."""


async def _resolve_covered(
    drivers: "SessionDrivers", session: SessionId, request: ApprovalRequested, resolution: ApprovalResolved
) -> None:
    """Approve the other open approvals of the session that the granted rules match."""
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
    covered: list[DecisionId] = []
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
            and _policy_for(other).covers(rule, as_asked(other.call, other.layer), spec_of(other.call.name))
        ):
            covered.append(other.approval)
    return covered
