"""The policy port: verdicts on tool calls."""

from collections.abc import Callable, Sequence
from typing import Protocol

from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Grant, ToolSpec, Verdict
from vaka.core.types.traits import NO_TRAITS, ToolTraits


class Policy(Protocol):
    """Decides on calls without side effects."""

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        """Return whether ``call`` may run, needs an approval, or must not run."""
        ...

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether the tool is offered to the model."""
        ...


class SessionPolicy(Policy, Protocol):
    """A policy whose verdicts depend on traits of the tool, or on values of the session.

    Such a value is the folder in which commands start.
    """

    def for_call(
        self, spec: ToolSpec, path: AgentPath, get_value: Callable[[str], JSON], traits: ToolTraits = NO_TRAITS
    ) -> Policy:
        """Return this policy as it judges the next call of a tool by the agent at ``path``.

        ``traits`` are declared by the tool; they can only restrict.
        """
        ...


class GrantingPolicy(Policy, Protocol):
    """A policy with a rule language, so that an approval can hold for longer than once."""

    cwd: str
    """The folder that relative paths in rules start from."""

    def with_grants(self, grants: Sequence[Grant]) -> Policy:
        """Return this policy with the grants of a session; they do not override denials and protected paths."""
        ...

    def rule_for(self, call: ToolCall, spec: ToolSpec) -> str:
        """Return the narrowest rules, one per line, that match this call; ``""`` when there are none."""
        ...

    def works_in_folder(self, spec: ToolSpec) -> bool:
        """Return whether the calls of a tool read, change or run files, whose relative paths start from ``cwd``."""
        ...

    def covers(self, rule: str, call: ToolCall, spec: ToolSpec) -> bool:
        """Return whether one of the rules, one per line, matches this call. Raises ``InvalidInput``."""
        ...
