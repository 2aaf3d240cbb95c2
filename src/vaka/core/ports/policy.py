"""The socket for rules: who may do what."""

from collections.abc import Sequence
from typing import Protocol

from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Grant, ToolSpec, Verdict


class Policy(Protocol):
    """Decides on calls. A pure look: it runs nothing, changes nothing and asks nobody."""

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        """Return whether ``call`` may run, must be asked about, or must not run."""
        ...

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether a model should be told of this tool at all."""
        ...


class FolderAwarePolicy(Policy, Protocol):
    """Rules that know of folders: what a command means depends on where it begins."""

    def in_folder(self, folder: str) -> Policy:
        """Return these rules, where commands begin in a folder of this machine."""
        ...


class GrantingPolicy(Policy, Protocol):
    """Rules in whose dialect people can say what they allow for longer than once."""

    cwd: str
    """The folder the rules hold in."""

    def with_grants(self, grants: Sequence[Grant]) -> Policy:
        """Return these rules with what people have allowed in a session; what denies and what is protected stays so."""
        ...

    def rule_for(self, call: ToolCall, spec: ToolSpec) -> str:
        """Return the rules, one per line, that mean just this call, or as little more as can be said; ``""``: none."""
        ...

    def covers(self, rule: str, call: ToolCall, spec: ToolSpec) -> bool:
        """Return whether rules, one per line, mean this call. Raises ``InvalidInput`` when they make no sense."""
        ...
