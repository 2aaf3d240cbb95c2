"""A decision with its reasons, for people, programs and the loop."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.content import clean
from vaka.core.types.ids import digest_of
from vaka.core.types.tool import Allow, Ask, Deny, Verdict

Word: TypeAlias = Literal["allow", "ask", "deny"]

_EACH = frozenset({"guard", "syntax", "protected"})
"""Layers whose questions are about one command or file, never about all that a rule means."""
_STRICT: tuple[Word, ...] = ("allow", "ask", "deny")


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one command of several."""

    command: str
    decision: Word
    rule: str = ""
    layer: str = ""
    reason: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen, and who says so: a rule and its layer, or the mode."""

    decision: Word
    rule: str = ""
    layer: str = ""
    reason: str = ""
    subcommands: tuple[Subcommand, ...] = ()
    grant: str = ""
    """The rule that would cover exactly what was asked; never wider than that."""

    @property
    def verdict(self) -> Verdict:
        """The decision as the loop takes it; a question tells the person which rule would cover exactly this."""
        if self.decision != "ask":
            return self.said
        told = f"to allow just this: {self.grant}" if self.grant and self.grant != self.rule else ""
        return Ask(self.reason, self._asking, self.layer, told)

    @property
    def _asking(self) -> str:
        """The name of the question: of what is dangerous each is one of its own, so that a yes answers no other.

        It is a digest, since a text of the command would be another one once secrets are taken out of it.
        """
        if self.layer not in _EACH:
            return self.rule
        return f"{self.rule or self.layer} {digest_of(clean(self.grant))[:16]}"

    @property
    def said(self) -> Verdict:
        """The decision with the rule that made it."""
        if self.decision == "allow":
            return Allow(self.rule, self.layer)
        return (Ask if self.decision == "ask" else Deny)(self.reason, self.rule, self.layer)

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return _STRICT.index(self.decision)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the decision that all of them together come to; several questions become one."""
    found = list(decisions)
    worst = max(found, key=lambda decision: decision.strictness)
    asks = {ask.grant: ask for ask in found if ask.decision == "ask"}
    if worst.decision != "ask" or len(asks) < 2:
        return worst
    reason = "; ".join(dict.fromkeys(ask.reason for ask in asks.values()))
    return msgspec.structs.replace(worst, reason=reason, grant=" & ".join(sorted(asks)))
