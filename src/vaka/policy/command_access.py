"""What a command may do that the sandbox keeps from others: reach hosts, and run without the sandbox."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from vaka.core.types.message import ToolCall
from vaka.core.types.tool import NO_ACCESS, CommandAccess
from vaka.matching.hosts import IPAddress, parse_host_rule
from vaka.policy.decision import DecisionKind, PermissionDecision
from vaka.policy.rules import Rule

HOSTS_ARGUMENT = "allow_hosts"
"""The argument of a command tool that names the hosts which the command needs."""
UNSANDBOXED_ARGUMENT = "dangerouslyDisableSandbox"
"""The argument of a command tool that asks to run without the sandbox."""

NETWORK_LAYER = "network"
"""The layer of questions about hosts that a command asks for."""
SANDBOX_LAYER = "sandbox"
"""The layer of questions about running without the sandbox."""

_ALLOWED_COMMAND = "true"
"""A command that needs no rule."""

WEB_PORTS = (80, 443)
"""The ports of a host that is named without one."""


class RequestedHost(NamedTuple):
    """A host that a command asks for; without a port on ``WEB_PORTS``."""

    text: str
    name: str
    ports: tuple[int, ...]
    address: IPAddress | None = None


def leaves_sandbox(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call asks to run without the sandbox; any value but false does."""
    return arguments.get(UNSANDBOXED_ARGUMENT) not in (None, False)


def requested_hosts_of(arguments: Mapping[str, Any]) -> list[RequestedHost]:
    """Return the hosts that a call asks for. Raises ``ValueError`` if a host is neither a name nor an address."""
    given: Any = arguments.get(HOSTS_ARGUMENT) or []
    if isinstance(given, list | tuple) and all(isinstance(text, str) for text in cast("list[object]", given)):
        return [parse_requested_host(text) for text in cast("list[str]", given)]
    raise ValueError(f"{HOSTS_ARGUMENT} is not a list of hosts")


def parse_requested_host(text: str) -> RequestedHost:
    """Parse ``host`` or ``host:port``. Raises ``ValueError`` for patterns, networks and URLs."""
    pattern = parse_host_rule(text)
    ports = (pattern.port,) if pattern.port else WEB_PORTS
    if not (pattern.name or pattern.network) or not pattern.exact:
        raise ValueError(f"{text!r} is not one host; expected a name or an address, such as example.com:8080")
    address = pattern.network.network_address if pattern.network is not None else None
    return RequestedHost(pattern.text, pattern.name or str(address), ports, address)


def as_asked(call: ToolCall, layer: str) -> ToolCall:
    """Return a call with only what a question of this layer is about: the rules of its answer are for no more."""
    if layer != NETWORK_LAYER:
        return call
    hosts = {HOSTS_ARGUMENT: call.arguments.get(HOSTS_ARGUMENT)}
    return msgspec.structs.replace(call, arguments={"command": _ALLOWED_COMMAND, **hosts})


class HostRules:
    """The rules ``Bash(domain:…)`` of a command tool."""

    def __init__(self, rules: Iterable[Rule], answers: Mapping[str, list[Rule]]) -> None:
        """``answers``: the approved rules that answer an ask rule, by its text."""
        self._rules = [rule for rule in rules if rule.host is not None]
        self._answers = answers

    def find(self, kind: DecisionKind, host: RequestedHost) -> list[Rule]:
        """Return the rules of a kind that match a host: on all of its ports to allow, on any to restrict."""
        found = [rule for rule in self._rules if rule.kind == kind and _matches(rule, host)]
        if kind != "ask":
            return found
        return [rule for rule in found if not any(_matches(one, host) for one in self._answers.get(rule.text, ()))]

    def access(self, arguments: Mapping[str, Any]) -> CommandAccess:
        """Return what a call may do if it is allowed, or approved; nothing if it names hosts that are none."""
        try:
            requested = tuple(host.text for host in requested_hosts_of(arguments))
        except ValueError:
            return NO_ACCESS
        rules = [rule for rule in self._rules if not self._is_answered(rule)]
        hosts = [(rule.kind == "allow", rule.host.text) for rule in rules if rule.host is not None]
        return CommandAccess(
            requested_hosts=requested,
            hosts=tuple(text for allows, text in hosts if allows),
            denied_hosts=tuple(text for allows, text in hosts if not allows),
            unsandboxed=leaves_sandbox(arguments),
        )

    def _is_answered(self, rule: Rule) -> bool:
        """Return whether an approved rule allows all hosts that an ask rule names."""
        answers = self._answers.get(rule.text, ()) if rule.kind == "ask" else ()
        return any(one.host == rule.host for one in answers)


def _matches(rule: Rule, host: RequestedHost) -> bool:
    pattern = rule.host
    if pattern is None:
        return False
    allows = rule.kind == "allow"
    fits = [
        pattern.matches(host.name, port, host.address) and bool(pattern.port or port in WEB_PORTS or not allows)
        for port in host.ports
    ]
    return all(fits) if allows else any(fits)


def name_unsandboxed_rule(decision: PermissionDecision, rules: Iterable[Rule]) -> PermissionDecision:
    """Return a decision on a command without the sandbox, with the text of the rule that made it as it is written."""
    if decision.decision == "ask":
        return decision  # its names must equal the names of the questions
    named = [rule for rule in rules if rule.unsandboxed and rule.kind == decision.decision]
    texts = {f"Bash({rule.pattern})" if rule.match_kind == "command" else "Bash": rule.text for rule in named}
    text = texts.get(decision.rule, decision.rule)
    reason = decision.reason.replace(f"the rule {decision.rule} ", f"the rule {text} ", 1)
    return msgspec.structs.replace(decision, rule=text, reason=reason)


def ask_for_host(host: RequestedHost, subject: str) -> PermissionDecision:
    """Return the question about a host that no rule matches; the modes do not decide about hosts of commands."""
    name = f"{NETWORK_LAYER} {host.text}"
    return PermissionDecision(
        decision="ask",
        rule=name,
        layer=NETWORK_LAYER,
        subject=subject,
        asks=(name,),
        reason=f"the command would reach {host.text}, to which the sandbox has no connection; a person is asked",
    )


def ask_for_unsandboxed(tool: str, *, changes: bool) -> PermissionDecision:
    """Return the question about a command that would run without the sandbox; ``changes``: the mode lets it change."""
    reason = f"{tool}: it would run without the sandbox"
    if not changes:
        return PermissionDecision(
            decision="deny", rule=SANDBOX_LAYER, layer=SANDBOX_LAYER, reason=f"{reason}, and a plan changes nothing"
        )
    return PermissionDecision(
        decision="ask",
        rule=SANDBOX_LAYER,
        layer=SANDBOX_LAYER,
        subject=f"{tool}(unsandboxed)",
        asks=(SANDBOX_LAYER,),
        reason=f"{reason}, with all permissions of the user; a person is asked",
    )
