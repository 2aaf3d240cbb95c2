"""A person's answer to an approval: what it may be, what it keeps, and what else it answers."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vaka.core.ports.store import Pending
from vaka.core.session.log import stamp
from vaka.core.types.content import clean
from vaka.core.types.control import SCOPES, ApprovalRequested, ApprovalResolved
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, Digest, SessionId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Grant
from vaka.policy.layered import LayeredPolicy
from vaka.policy.targets import EDITS, READS, built_in, spec_of
from vaka.runtime.edits import check_edit
from vaka.runtime.options import Answer
from vaka.runtime.remember import forget, remember, settings_file

if TYPE_CHECKING:
    from vaka.runtime.runtime import Runtime


MOST = 1 << 20
"""Bytes an answer may have."""
LONGEST = 10 * 365 * 24 * 3600
"""Seconds for which something can be allowed in a session; for longer, it is allowed for the rest of it."""


async def resolve(
    runtime: "Runtime", pending: Pending, decision: Literal["approve", "reject"], answer: Answer
) -> Event:
    """Bring an answer to a session and return the one that counts, which is the first.

    Raises ``InvalidInput`` for an answer that makes no sense and ``ConfigError`` when what it allows cannot be kept:
    then nothing was answered.
    """
    asked = pending.event.data
    if not isinstance(asked, ApprovalRequested):
        raise InvalidInput(f"{pending.id} is a question, which is answered and not approved")
    said = plain(_read(pending.id, decision, answer))
    until = _until(runtime, asked, said, answer.get("ttl"))
    said = msgspec.structs.replace(settled(asked, said), source=here(), until=until)
    if said.edit is not None:
        await check_edit(runtime, pending, asked, said.edit)
    if said.scope != "once" and late(runtime, asked):
        raise InvalidInput(f"{pending.id} has expired at {asked.expires}; it can no longer allow anything")
    path, added = await _keep(asked, said)
    try:
        event = await runtime.offer(pending.session, said, pending.id)
    except BaseException:
        await _drop(path, added)
        raise
    if event.data != runtime.secrets.clean(said):
        await _drop(path, added)
    elif said.rule:
        await _answer_others(runtime, pending.session, asked, said)
    return event


def late(runtime: "Runtime", asked: ApprovalRequested) -> bool:
    """Return whether the time to decide is over: then whatever is said, it is a no."""
    return bool(asked.expires) and stamp(runtime.env.clock.time()) >= asked.expires


def _read(approval: DecisionId, decision: Literal["approve", "reject"], answer: Answer) -> ApprovalResolved:
    unknown = sorted(answer.keys() - Answer.__annotations__.keys())
    if unknown:
        raise InvalidInput(f"an answer has no {unknown[0]!r}; it may have {', '.join(Answer.__annotations__)}")
    return ApprovalResolved(
        approval=approval, decision=decision, message=answer.get("message", ""), edit=answer.get("edit"),
        scope=answer.get("scope", "once"), rule=answer.get("rule", ""), by=answer.get("by", ""),
    )  # fmt: skip


def _until(runtime: "Runtime", asked: ApprovalRequested, said: ApprovalResolved, ttl: float | None) -> str:
    """Return when what an answer allows for the session is no longer allowed."""
    if ttl is not None and said.scope != "session":
        raise InvalidInput("only what is allowed for the session can be allowed for some time")
    if ttl is not None and not 0 < ttl <= LONGEST:
        raise InvalidInput(f"ttl {ttl!r} must be seconds above zero, {LONGEST} at most")
    lasts = asked.lasts if ttl is None and said.scope == "session" else ttl
    return stamp(runtime.env.clock.time() + min(lasts, LONGEST)) if lasts is not None else ""


def plain(said: ApprovalResolved) -> ApprovalResolved:
    """Return an answer that the log can keep. Raises ``InvalidInput`` when it is too large."""
    said = msgspec.structs.replace(said, message=clean(said.message), by=clean(said.by), rule=clean(said.rule))
    try:
        size = len(msgspec.json.encode(said))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the arguments cannot be written as JSON: {error}") from error
    if size > MOST:
        raise InvalidInput(f"an answer may have {MOST} bytes as JSON; this one has {size}")
    return said


def settled(asked: ApprovalRequested, said: ApprovalResolved) -> ApprovalResolved:
    """Return an answer with the rules it keeps. Raises ``InvalidInput`` when it is none that can be given."""
    if said.scope not in SCOPES:
        raise InvalidInput(f"scope {said.scope!r} must be one of {', '.join(SCOPES)}")
    if said.decision == "reject" and (said.edit is not None or said.scope != "once" or said.rule):
        raise InvalidInput("a no has no scope, no rule and no edit")
    if said.decision == "approve" and asked.decisions:
        wanted = "approve" if said.edit is None else "edit"
        if wanted not in asked.decisions:
            raise InvalidInput(f"{asked.approval} takes {' or '.join(possible(asked))}, not {wanted}")
    if said.scope == "once":
        if said.rule:
            raise InvalidInput("a rule is kept for the session, the project or the user; a yes for once keeps none")
        return said
    if said.scope not in asked.lasting:
        raise InvalidInput(_too_long(asked, said.scope))
    rule = "\n".join(Grant(rule=said.rule or asked.grant).rules)
    call = asked.call if said.edit is None else msgspec.structs.replace(asked.call, arguments=said.edit)
    check_rule(asked, rule, call, said.scope)
    return msgspec.structs.replace(said, rule=rule)


def possible(asked: ApprovalRequested) -> list[str]:
    """Return what may be said of a call; no is always possible."""
    return [word for word in ("approve", "edit", "reject") if word in asked.decisions or word == "reject"]


def check_rule(asked: ApprovalRequested, rule: str, call: ToolCall, scope: str = "session") -> None:
    """Raise ``InvalidInput`` unless rules, one per line, can be kept for a scope and mean the call."""
    if not all(text.isprintable() for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} has characters that cannot be shown as they are, so it is not kept")
    folder = asked.cwd if scope == "session" else str(settings_file(scope, asked.cwd, Path.home())[1])
    if folder != asked.cwd and any(_begins_at_folder(text) for text in Grant(rule=rule).rules):
        raise InvalidInput(f"the rule {rule!r} begins at /, which is {folder!r} there; write // before a whole path")
    if not _policy(asked).covers(rule, call, spec_of(call.name), folder):
        raise InvalidInput(f"the rule {rule!r} does not mean this call of {call.name}; {asked.grant!r} does")


def _begins_at_folder(rule: str) -> bool:
    """Return whether a rule is about a path that begins where the settings are."""
    tool, _, pattern = rule.partition("(")
    return built_in(tool) in READS | EDITS and pattern.startswith("/") and not pattern.startswith("//")


def _too_long(asked: ApprovalRequested, scope: str) -> str:
    if not asked.grant:
        return f"{asked.approval} can only be approved once: no rule can say that it is allowed"
    return (
        f"{asked.approval} cannot be approved for the {scope}: {asked.rule!r} would ask again all the same; "
        f"possible is {' or '.join(asked.lasting)}"
    )


def here() -> str:
    """Return where this is: machine, process, and terminal if there is one."""
    terminal = ""
    with contextlib.suppress(OSError, AttributeError):
        terminal = f", {os.ttyname(0)}"
    return f"{socket.gethostname()}, process {os.getpid()}{terminal}"


def _policy(asked: ApprovalRequested) -> LayeredPolicy:
    """Return what knows what rules mean in the folder of a session."""
    return LayeredPolicy(cwd=asked.cwd).at(asked.folder)


async def _keep(asked: ApprovalRequested, said: ApprovalResolved) -> tuple[Path | None, list[str]]:
    """Put the rules of an answer where they are kept; return the file and what was not in it."""
    if said.scope not in ("project", "user"):
        return None, []
    path, _ = settings_file(said.scope, asked.cwd, Path.home())
    return path, await asyncio.to_thread(remember, path, Grant(rule=said.rule).rules)


async def _drop(path: Path | None, added: list[str]) -> None:
    """Somebody else was first: what was kept for an answer that does not count is taken out again."""
    if path is not None and added:
        await asyncio.to_thread(forget, path, added)


async def _answer_others(
    runtime: "Runtime", session: SessionId, asked: ApprovalRequested, said: ApprovalResolved
) -> None:
    """Answer what else waits in the session and is meant by the rules that were kept."""
    specs = {asked.call.name: asked.spec}
    for id in _covered(await runtime.decisions(session), asked, said.rule, specs):
        why = f"covered by what was allowed with {asked.approval}"
        body = ApprovalResolved(approval=id, decision="approve", message=why, by=said.by, source=said.source)
        await runtime.offer(session, body, id)


def _covered(
    waiting: Iterable[Pending], asked: ApprovalRequested, rule: str, specs: dict[str, Digest]
) -> list[DecisionId]:
    found: list[DecisionId] = []
    for pending in waiting:
        other = pending.event.data
        if not isinstance(other, ApprovalRequested) or other.approval == asked.approval:
            continue
        if other.decisions and "approve" not in other.decisions:
            continue
        alike = other.names <= asked.names and other.spec == specs.get(other.call.name, other.spec)
        if alike and "session" in other.lasting and _policy(other).covers(rule, other.call, spec_of(other.call.name)):
            found.append(other.approval)
    return found
