"""What a hook decides: its exit code and its JSON output, and the decisions of several hooks merged into one."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

BLOCKING_STATUS = 2
Permission = Literal["", "allow", "ask", "deny"]
_STRICTNESS: tuple[Permission, ...] = ("", "allow", "ask", "deny")
_PERMISSIONS: Mapping[str, Permission] = {
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "deny": "deny",
    "block": "deny",
}
_STATUS_HINTS = {
    126: " (the program cannot be run; `chmod +x` makes a script executable)",
    127: " (there is no such program, or the first line of the script names none, also when it ends with CRLF)",
}
CONTEXT_EVENTS = ("UserPromptSubmit", "SessionStart", "PreCompact")
"""The events whose hooks add what they print, without JSON, to the conversation, or to what a summary must keep."""


class HookDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of one hook, or of all hooks of an event. A hook that prints nothing decides nothing."""

    permission: Permission = ""
    """For tool calls and approvals; ``deny`` blocks any other event, such as a prompt or a stop."""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Other arguments for the call (``updatedInput``)."""
    context: tuple[str, ...] = ()
    """Texts for the model (``additionalContext``)."""
    stops: bool = False
    """The turn ends (``continue: false``), with ``stop_reason`` for the user."""
    stop_reason: str = ""
    messages: tuple[str, ...] = ()
    """Texts for the user: system messages, and what went wrong."""
    quiet: bool = False
    """The log does not keep what the hook printed (``suppressOutput``)."""

    @property
    def blocks(self) -> bool:
        return self.permission == "deny"


def read_decision(event: str, status: int, stdout: str, stderr: str, *, problem: str = "") -> HookDecision:
    """Return what a hook decided by its exit code and its output; ``problem`` is a failure to run it."""
    if problem:
        return HookDecision(messages=(problem,))
    if status == BLOCKING_STATUS:
        return HookDecision(permission="deny", reason=stderr.strip() or "a hook refused this without a reason")
    if status != 0:
        hint = _STATUS_HINTS.get(status, "")
        return HookDecision(messages=(f"exit status {status}{hint}: {stderr.strip()[:2000]}",))
    document = _parse_object(stdout)
    if document is None:
        text = stdout.strip()
        return HookDecision(context=(text,) if text and event in CONTEXT_EVENTS else ())
    return _read_document(event, document)


def announces_async(line: bytes) -> bool:
    """Return whether the first line of a command says that nothing shall wait for it."""
    document = _parse_object(line.decode("utf-8", "replace")) if b'"async"' in line else None
    return document is not None and document.get("async") is True


def _parse_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _read_document(event: str, document: dict[str, Any]) -> HookDecision:
    specific = _table(document.get("hookSpecificOutput"))
    inner = _table(specific.get("decision"))
    permission = _PERMISSIONS.get(_text(specific.get("permissionDecision") or inner.get("behavior")).lower(), "")
    reason = _text(specific.get("permissionDecisionReason") or inner.get("message"))
    if not permission:
        permission = _PERMISSIONS.get(_text(document.get("decision")).lower(), "")
        reason = reason or _text(document.get("reason"))
    arguments = specific.get("updatedInput", inner.get("updatedInput"))
    context, message = _text(specific.get("additionalContext")).strip(), _text(document.get("systemMessage")).strip()
    if permission in ("ask", "deny"):
        reason = reason or _text(document.get("reason")) or message
    stops = document.get("continue") is False or (inner.get("interrupt") is True and permission == "deny")
    return HookDecision(
        permission=permission,
        reason=reason or _text(document.get("reason")),
        arguments=cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None,
        context=(context,) if context else (),
        messages=(message,) if message else (),
        stops=stops,
        stop_reason=_text(document.get("stopReason")) or (reason if stops else ""),
        quiet=document.get("suppressOutput") is True,
    )


def merge_decisions(decisions: Iterable[HookDecision]) -> HookDecision:
    """Return one decision: deny over ask over allow, the last changed arguments, and all texts in order."""
    found = list(decisions)
    strictest = max(found, key=lambda decision: _STRICTNESS.index(decision.permission), default=HookDecision())
    arguments = [decision.arguments for decision in found if decision.arguments is not None]
    stopping = [decision for decision in found if decision.stops]
    return HookDecision(
        permission=strictest.permission,
        reason=strictest.reason,
        arguments=arguments[-1] if arguments else None,
        context=tuple(text for decision in found for text in decision.context),
        messages=tuple(text for decision in found for text in decision.messages),
        stops=bool(stopping),
        stop_reason=stopping[0].stop_reason if stopping else "",
    )


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
