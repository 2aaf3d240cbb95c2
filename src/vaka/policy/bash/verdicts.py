"""What is decided about commands, as plain data."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.tool import Allow, Ask, Deny, Verdict
from vaka.policy.bash.words import Simple

Decision: TypeAlias = Literal["allow", "ask", "deny"]
_STRICT = {"allow": 0, "ask": 1, "deny": 2}


class Rule(msgspec.Struct, frozen=True):
    """What somebody said about commands: a pattern, or ``None`` for all of them."""

    pattern: str | None
    kind: Decision
    layer: str = ""
    answers: frozenset[str] = frozenset()
    """The rules that asked and were answered with this one: they do not ask about what it allows."""

    @property
    def text(self) -> str:
        """The rule as people write it."""
        return "Bash" if self.pattern is None else f"Bash({self.pattern})"


class Subcommand(msgspec.Struct, frozen=True):
    """One simple command and what was decided about it."""

    command: str
    decision: Decision
    rule: str = ""
    layer: str = ""
    reason: str = ""


class Opinion(msgspec.Struct, frozen=True):
    """A decision, the rule and layer it came from, and why."""

    decision: Decision
    rule: str = ""
    layer: str = ""
    reason: str = ""

    @classmethod
    def of(cls, verdict: Verdict) -> "Opinion":
        """Return what a verdict of the policy port says."""
        if isinstance(verdict, Allow):
            return cls("allow", verdict.rule, verdict.layer)
        return cls("deny" if isinstance(verdict, Deny) else "ask", verdict.rule, verdict.layer, verdict.reason)

    def subcommand(self, simple: Simple) -> Subcommand:
        """Return this as the verdict on a command."""
        return Subcommand(simple.source, self.decision, self.rule, self.layer, self.reason)


class Judgement(msgspec.Struct, frozen=True):
    """What was decided about a whole command, by which rule of which layer, and why; then about each part of it."""

    decision: Decision
    rule: str = ""
    layer: str = ""
    reason: str = ""
    subcommands: tuple[Subcommand, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The same as the policy port says it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)


def strictest(opinions: Sequence[Opinion]) -> Opinion:
    """Return the opinion that permits least, the first of several; when all allow, all their rules are named."""
    found = max(opinions, key=lambda one: _STRICT[one.decision])
    if found.decision != "allow":
        return found
    rules = dict.fromkeys(one.rule for one in opinions if one.rule)
    layers = dict.fromkeys(one.layer for one in opinions if one.rule)
    return (
        Opinion("allow", ", ".join(rules), ", ".join(layers) or found.layer, found.reason)
        if len(rules) > 1
        else _told(opinions)
    )


def _told(opinions: Sequence[Opinion]) -> Opinion:
    return next((one for one in opinions if one.rule), opinions[0])
