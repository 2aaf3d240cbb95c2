"""The way of one command to the network, and what a model reads about hosts that it could not reach."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from vaka.core.types.tool import CommandAccess

_WEB_PORTS = (80, 443)

OUTPUT_END_BYTES = 16 * 1024
"""Bytes at the end of the output that are searched for errors of connections."""

_NO_CONNECTION = re.compile(
    rb"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    rb"|no address associated with hostname|failed to resolve|EAI_AGAIN|ENOTFOUND|ENETUNREACH",
    re.IGNORECASE,
)
"""The output of programs that do not use the proxy."""


class RefusedConnection(Protocol):
    """A host that the command could not reach."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def reason(self) -> str:
        """Why the network rules of the runtime refuse it, ``""`` if they do not."""
        ...

    @property
    def listed(self) -> bool:
        """Whether a rule allows it to commands."""
        ...

    @property
    def denied(self) -> bool:
        """Whether a rule denies it to commands."""
        ...


class CommandGate(Protocol):
    """The proxy of one command."""

    @property
    def address(self) -> str:
        """The value for ``Command.proxy``."""
        ...

    @property
    def refused_hosts(self) -> Sequence[RefusedConnection]:
        """The hosts that it refused until now, each once; only the first ones."""
        ...

    async def close(self) -> None:
        """End all connections. Safe to call twice."""
        ...


OpenGate: TypeAlias = Callable[[CommandAccess], Awaitable[CommandGate]]


def describe_refusals(refused: Iterable[RefusedConnection]) -> list[str]:
    """Return what a model reads about refused hosts: why, and what would allow them."""
    refused = list(refused)
    unlisted = list(dict.fromkeys(_host_text_of(one) for one in refused if not (one.listed or one.denied)))
    denied = list(dict.fromkeys(_host_text_of(one) for one in refused if one.denied))
    notes: list[str] = []
    if unlisted:
        notes.append(_describe_unlisted(unlisted))
    if denied:
        notes.append(f"the sandbox refused the network to {', '.join(denied)}, which a rule denies")
    places = {_place_of(one): one.reason for one in refused if one.reason}
    notes += [f"{place}: {why}; only the user can change that: --allow-host {place}" for place, why in places.items()]
    return notes


def _describe_unlisted(hosts: list[str]) -> str:
    rules, them = " and ".join(map(_rule_of, hosts)), "them" if len(hosts) > 1 else "it"
    permit = f"the allow rules {rules} let" if len(hosts) > 1 else f"the allow rule {rules} lets"
    return (
        f"the sandbox refused the network to {', '.join(hosts)}: no rule lets commands reach {them}. If the command "
        f"needs {them}, call Bash again with allow_hosts={json.dumps(hosts)}, and a person is asked; {permit} all "
        f"commands reach {them}"
    )


def refusal_values(refused: Iterable[RefusedConnection]) -> list[dict[str, str]]:
    """Return refused hosts as data, each with the rule and the trusted host that would allow it, ``""`` for none."""
    return [
        {
            "host": _host_text_of(one),
            "rule": "" if one.listed or one.denied else _rule_of(_host_text_of(one)),
            "trusted_host": _place_of(one) if one.reason else "",
        }
        for one in refused
    ]


def _host_text_of(refused: RefusedConnection) -> str:
    """Return a host as rules and ``allow_hosts`` name it."""
    return refused.host if refused.port in _WEB_PORTS else _place_of(refused)


def _place_of(refused: RefusedConnection) -> str:
    return f"[{refused.host}]:{refused.port}" if ":" in refused.host else f"{refused.host}:{refused.port}"


def _rule_of(host: str) -> str:
    return f"Bash(domain:{host})"


def ignores_proxy(output_end: bytes) -> bool:
    """Return whether the output of a failed command looks like the output of a program that ignores the proxy."""
    return _NO_CONNECTION.search(output_end) is not None


NO_PROXY_NOTE = (
    "commands have no network but the proxy that HTTPS_PROXY names, and this command seems not to use it. If there is "
    "no other way, dangerouslyDisableSandbox runs it without the sandbox, and a person is asked"
)

NO_NETWORK_NOTE = "commands have no network in this sandbox"
