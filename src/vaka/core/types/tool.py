"""What is known of a tool before it runs."""

from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.ids import JSON, Digest, digest_of

Effect: TypeAlias = Literal["read", "idempotent", "once", "resume"]
"""What a second run would do: nothing (``read``), nothing under the same key (``idempotent``), harm (``once``), or
go on from the tool's own events in this log (``resume``)."""

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
    """Seconds one run may take; ``None`` for no bound."""
    poll: bool = False
    """True when asking the same thing again and again is the tool's purpose: the breaker leaves it alone."""
    strict: bool = False
    """True when ``parameters`` is also valid in OpenAI's strict dialect without loss."""
    layer: str = "code"
    """Where the tool came from, for the rules: ``code`` was handed over by the program itself."""

    @property
    def digest(self) -> Digest:
        """A name for exactly this spec, so that an approval does not outlive a change of it."""
        return digest_of(msgspec.structs.asdict(self))  # all fields: an encoder leaves out some that are defaults


class ParsedArguments(msgspec.Struct, frozen=True):
    """Arguments that passed the schema; ``repaired`` says what was mended on the way, if anything."""

    value: dict[str, Any]
    repaired: str = ""


class InvalidArguments(msgspec.Struct, frozen=True):
    """Why arguments cannot be used, in words the model can act on."""

    message: str


class Allow(msgspec.Struct, frozen=True):
    """The call may run. ``rule`` names what allowed it."""

    rule: str = ""
    layer: str = ""


class Ask(msgspec.Struct, frozen=True):
    """A person must decide; ``rule`` names what asked, so that a second look knows it was answered."""

    reason: str = ""
    rule: str = ""
    layer: str = ""
    message: str = ""
    decisions: tuple[str, ...] = ()
    """What of ``approve``, ``edit`` and ``reject`` the person may say; all of it when empty. No is always possible."""
    grant: str = ""
    """The rules, one per line, that a yes for longer than once would keep; ``""``: a yes counts once."""
    scopes: tuple[str, ...] = ()
    """How long a yes may count, where not everything is of use: of ``once``, ``session``, ``project`` and ``user``."""
    asks: tuple[str, ...] = ()
    """Everything that asks, when it is more than ``rule``."""
    folder: str = ""
    """Where a command would begin, when that is not the working folder: elsewhere it is another command."""

    @property
    def rule_names(self) -> frozenset[str]:
        """The names of everything that asks."""
        return frozenset(self.asks or (self.rule,))


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person has allowed for the rest of a session."""

    rule: str
    """Rules in the dialect of the policy, one per line."""
    answers: tuple[str, ...] = ()
    """The names of what had asked: only those it answers."""
    tool: str = ""
    spec: str = ""
    """The digest of the tool as it was then; when the tool has changed, nothing was said of it."""
    until: str = ""
    """When it is no longer allowed; ``""``: never in this session."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules, each on its own."""
        return tuple(line.strip() for line in self.rule.splitlines() if line.strip())


PROTECTED_LAYER = "protected"
"""The layer of questions about what nobody may get at in passing: not even arguments that a person wrote."""


class Deny(msgspec.Struct, frozen=True):
    """The call must not run; ``reason`` is told to the model."""

    reason: str = ""
    rule: str = ""
    layer: str = ""


Verdict: TypeAlias = Allow | Ask | Deny

JSONSchema: TypeAlias = dict[str, JSON]
