"""Specs of tools, their arguments, permissions for calls, and verdicts on calls."""

from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from vaka.core.types.ids import Digest, digest_of

Effect: TypeAlias = Literal["read", "idempotent", "once", "resume"]
"""The effect of a second run: none (``read``), none under the same key (``idempotent``), possible harm (``once``), or
going on from the tool's own events in this log (``resume``)."""

ToolChoice: TypeAlias = str
"""``auto``, ``none``, ``required``, or the name of a tool."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as models, rules and people see it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    output: dict[str, Any] | None = None
    effect: Effect = "once"
    timeout: float | None = 60.0
    """Seconds one run may take; ``None`` for no limit."""
    poll: bool = False
    """True for a tool that is meant to be called repeatedly with equal arguments: the breaker ignores it."""
    strict: bool = False
    """True when ``parameters`` is also valid in OpenAI's strict dialect without loss."""
    layer: str = "code"
    """The origin of the tool, for the rules; ``code``: the program passed it to the agent."""
    native: dict[str, str] = {}
    """The type of the same tool where a provider has it built in, by provider: its models know the tool already."""

    @property
    def digest(self) -> Digest:
        """The digest of all fields, so that an approval does not outlive a change of the spec."""
        fields = msgspec.structs.asdict(self)  # an encoder would omit fields that are defaults
        if not self.native:  # as before this field existed, so that older approvals hold
            del fields["native"]
        return digest_of(fields)


class ParsedArguments(msgspec.Struct, frozen=True):
    """Arguments that passed the schema; ``repaired`` names the repairs they needed."""

    value: dict[str, Any]
    repaired: str = ""


class InvalidArguments(msgspec.Struct, frozen=True):
    """The errors of arguments, as a message to the model."""

    message: str


class FileUse(NamedTuple):
    """The files that a call uses: those calls of one step that use the same files run in order."""

    paths: tuple[tuple[str, ...], ...]
    """The names from the root to each file or folder, with all that is in it; ``()`` is the root itself."""
    writes: bool

    def conflicts_with(self, other: "FileUse") -> bool:
        """Return whether one of two calls changes a file that the other one uses."""
        return (self.writes or other.writes) and any(
            all(mine == theirs for mine, theirs in zip(path, known, strict=False))
            for path in self.paths
            for known in other.paths
        )


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions of one settings file, or of the command line."""

    name: str
    """``user``, ``project``, ``local``, ``settings``, ``flag``, ``managed`` or another name."""
    origin: str = ""
    """The file or option it comes from."""
    folder: str = ""
    """The anchor of ``/x`` in a path rule; by default the working directory."""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str = ""
    directories: tuple[str, ...] = ()
    """Additional working directories."""
    no_bypass: bool = False
    """The mode ``bypassPermissions`` is switched off."""
    exclusive: bool = False
    """The allow rules of other layers are ignored."""
    project: bool = False
    """It is part of the project, so it may never choose ``bypassPermissions``."""
    trusted: bool = True
    """A layer that is not trusted can only restrict."""
    lines: dict[str, int] = {}
    """The line of each rule of a file, by its kind and text, and the line of ``mode``."""

    def locate(self, key: str) -> str:
        """Return the origin of a rule or of the mode, with its line."""
        return f"{self.origin}:{self.lines[key]}" if key in self.lines else self.origin


Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
"""What happens to a call that no rule matches."""

MODES_BY_STRICTNESS: tuple[Mode, ...] = ("bypassPermissions", "acceptEdits", "default", "plan", "dontAsk")
"""The modes, the mode that permits most first; a later one permits nothing that an earlier one does not permit."""

SANDBOX_ONLY_RULE = "Bash(unsandboxed:*)"
"""The rule about all commands that would run without the sandbox: denied where the sandbox is required."""


class CommandAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may do that the sandbox keeps from others, as rules and persons have decided."""

    requested_hosts: tuple[str, ...] = ()
    """The hosts that the call asks for, each judged for this call."""
    hosts: tuple[str, ...] = ()
    """Patterns of hosts that rules allow to all commands."""
    denied_hosts: tuple[str, ...] = ()
    """Patterns of hosts that a rule denies, or asks about: commands reach them only as ``requested_hosts``."""
    unsandboxed: bool = False
    """Whether the command runs without the sandbox."""


NO_ACCESS = CommandAccess()


class Allow(msgspec.Struct, frozen=True):
    """The call may run. ``rule`` names the rule that allows it."""

    rule: str = ""
    layer: str = ""
    folder: str | None = None
    """The folder in which a command was judged, ``""`` for the working folder; ``None``: it does not matter."""
    arguments: dict[str, Any] | None = None
    """Other arguments for the call; only middleware sets them."""
    access: CommandAccess = NO_ACCESS
    """Exceptions from the sandbox for a command; default: none."""


class Ask(msgspec.Struct, frozen=True):
    """A person must decide; ``rule`` names the rule that asks, so that a second check recognizes the answer."""

    reason: str = ""
    rule: str = ""
    layer: str = ""
    message: str = ""
    decisions: tuple[str, ...] = ()
    """The allowed ones of ``approve``, ``edit`` and ``reject``; all when empty. ``reject`` is always allowed."""
    grant: str = ""
    """The rules, one per line, that an approval for longer than once adds; ``""``: it holds once."""
    scopes: tuple[str, ...] = ()
    """The allowed ones of ``once``, ``session``, ``project`` and ``user``; all when empty."""
    asks: tuple[str, ...] = ()
    """The names of all rules that ask, when there are more than ``rule``."""
    folder: str | None = None
    """The folder in which a command was judged, as in ``Allow``: the approval holds for that folder only."""
    arguments: dict[str, Any] | None = None
    """Other arguments for the call; only middleware sets them."""
    access: CommandAccess = NO_ACCESS
    """Exceptions from the sandbox for an approved command, as in ``Allow``."""

    @property
    def rule_names(self) -> frozenset[str]:
        """The names of all rules that ask."""
        return frozenset(self.asks or (self.rule,))


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person has allowed for the rest of a session."""

    rule: str
    """Rules in the dialect of the policy, one per line."""
    answers: tuple[str, ...] = ()
    """The names of the rules that had asked: the grant answers only these."""
    tool: str = ""
    spec: str = ""
    """The digest of the tool's spec at that time; the grant does not hold for a changed spec."""
    until: str = ""
    """When the grant expires; ``""``: at the end of the session."""

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.rule.splitlines() if line.strip())


UNTRUSTED_LAYER = "untrusted"
"""The layer of tools of definitions in a folder that is not trusted: the effect that they declare does not count."""

PROTECTED_LAYER = "protected"
"""The layer of questions about protected paths: also arguments that a person edited are asked about."""
READ_OUTPUT_TOOL = "read_output"
"""The tool with which an agent without ``Read`` reads a text that was shown in part."""


class Deny(msgspec.Struct, frozen=True):
    """The call must not run; the model reads ``reason``."""

    reason: str = ""
    rule: str = ""
    layer: str = ""


Verdict: TypeAlias = Allow | Ask | Deny
