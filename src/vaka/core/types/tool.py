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


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that passed the schema; ``repaired`` says what was mended on the way, if anything."""

    value: dict[str, Any]
    repaired: str = ""


class Problem(msgspec.Struct, frozen=True):
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


class Deny(msgspec.Struct, frozen=True):
    """The call must not run; ``reason`` is told to the model."""

    reason: str = ""
    rule: str = ""
    layer: str = ""


Verdict: TypeAlias = Allow | Ask | Deny

JSONSchema: TypeAlias = dict[str, JSON]
