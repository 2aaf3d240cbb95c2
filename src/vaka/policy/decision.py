"""A decision with its reasons, for people, programs and the loop."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.ids import digest_of
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import PROTECTED_LAYER, Allow, Ask, Deny, Verdict

DecisionKind: TypeAlias = Literal["allow", "ask", "deny"]

SINGLE_USE_LAYERS = frozenset({"guard", "syntax", PROTECTED_LAYER})
"""Layers whose questions are about one command or file, never about all that a rule means."""
_BY_STRICTNESS: tuple[DecisionKind, ...] = ("allow", "ask", "deny")


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one command of several."""

    command: str
    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""


class PermissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen, and who says so: a rule and its layer, or the mode."""

    decision: DecisionKind
    rule: str = ""
    layer: str = ""
    reason: str = ""
    subcommands: tuple[Subcommand, ...] = ()
    subject: str = ""
    """What is asked about, in the words of rules: two questions about the same are one."""
    asks: tuple[str, ...] = ()
    """The names of everything that asks."""

    @property
    def verdict(self) -> Verdict:
        """The decision as the loop takes it."""
        if self.decision != "ask":
            return self.rule_verdict
        rule = question_name_of(self.rule, self.layer, self.subject)
        return Ask(self.reason, rule, self.layer, asks=self.asks if self.asks != (rule,) else ())

    @property
    def single_use(self) -> bool:
        """Whether this is about one command or file, never about all that a rule means."""
        return self.layer in SINGLE_USE_LAYERS

    @property
    def rule_verdict(self) -> Verdict:
        """The decision with the rule that made it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return _BY_STRICTNESS.index(self.decision)


def strictest_decision(decisions: Iterable[PermissionDecision]) -> PermissionDecision:
    """Return the decision that all of them together come to; several questions become one."""
    found = list(decisions)
    worst = max(found, key=lambda decision: decision.strictness)
    asks = {ask.subject: ask for ask in found if ask.decision == "ask"}
    if worst.decision != "ask" or len(asks) < 2:
        return worst
    reason = "; ".join(dict.fromkeys(ask.reason for ask in asks.values()))
    names = tuple(sorted({name for ask in asks.values() for name in ask.asks}))
    return msgspec.structs.replace(worst, reason=reason, subject=" & ".join(sorted(asks)), asks=names)


def question_name_of(rule: str, layer: str, subject: str) -> str:
    """Return the name of a question: of what is dangerous each is one of its own, so that a yes answers no other.

    It is a digest, since a text of the command would be another one once secrets are taken out of it.
    """
    if layer not in SINGLE_USE_LAYERS:
        return rule
    return f"{rule or layer} {digest_of(replace_surrogates(subject))[:16]}"
