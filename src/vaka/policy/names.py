"""Rules that go by the name of a tool."""

from collections.abc import Iterable
from typing import cast

from vaka.core.ports.policy import FolderAwarePolicy, Policy
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Allow, Ask, Deny, ToolSpec, Verdict
from vaka.policy.decision import Mode, default_verdict, parse_mode
from vaka.policy.matching import matches_wildcards


class NamePolicy:
    """Deny wins over ask, ask over allow, and where no rule matches the mode decides.

    A rule is the name of a tool, ``mcp__server`` for every tool of a server, or a name with ``*`` in it.
    """

    def __init__(
        self,
        mode: str = "default",
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        cwd: str | None = None,
    ) -> None:
        self.mode: Mode = parse_mode(mode)
        self.allow, self.ask, self.deny = _rules(allow), _rules(ask), _rules(deny)
        self.cwd = cwd
        for rule in self.allow:
            _narrow_enough(rule)

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        """Return whether a call of the tool may run, must be asked about, or must not run."""
        name = spec.name
        if rule := _match(self.deny, name):
            return Deny(f"{name} is denied by the rule {rule!r}", rule, "flag")
        if rule := _match(self.ask, name):
            if self.mode == "dontAsk":
                return Deny(f"the rule {rule!r} asks about {name}, and nobody is to be asked", rule, "flag")
            return Ask(f"the rule {rule!r} asks about {name}", rule, "flag")
        if rule := _match(self.allow, name):
            return Allow(rule, "flag")
        return default_verdict(self.mode, spec)

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether a model is told of the tool: a denied one does not exist for it."""
        return not _match(self.deny, spec.name)


class _CombinedPolicy:
    """At most what each of two policies permits."""

    def __init__(self, parent: Policy, child: Policy) -> None:
        self.parent, self.child = parent, child

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        first, second = self.parent.judge(call, spec, path), self.child.judge(call, spec, path)
        for verdict in (first, second):
            if isinstance(verdict, Deny):
                return verdict
        if isinstance(first, Ask) and isinstance(second, Ask):
            return _merge_asks(first, second)
        return second if isinstance(second, Ask) else first

    def visible(self, spec: ToolSpec) -> bool:
        return self.parent.visible(spec) and self.child.visible(spec)

    def in_folder(self, folder: str) -> Policy:
        """Return both, where commands begin in a folder."""
        return _CombinedPolicy(_in_folder(self.parent, folder), _in_folder(self.child, folder))


def _in_folder(policy: Policy, folder: str) -> Policy:
    return cast("FolderAwarePolicy", policy).in_folder(folder) if hasattr(policy, "in_folder") else policy


def combine(parent: Policy, child: Policy) -> Policy:
    """Return a policy that denies what either denies and asks what either asks."""
    return _CombinedPolicy(parent, child)


def _merge_asks(parent: Ask, child: Ask) -> Ask:
    """One question for two: a grant for the parent's rule alone does not answer it."""
    if (parent.rule, parent.layer) == (child.rule, child.layer):
        return parent
    return Ask(
        reason="; ".join(filter(None, (parent.reason, child.reason))),
        rule=f"{parent.rule} & {child.rule}",
        layer=parent.layer,
        message="; ".join(filter(None, (parent.message, child.message))),
        folder=parent.folder or child.folder,
    )


def _rules(rules: Iterable[str]) -> tuple[str, ...]:
    given = (rules,) if isinstance(rules, str) else tuple(rules)
    for rule in given:
        _well_formed(rule)
    return given


def _well_formed(rule: str) -> None:
    name, bracket, _ = rule.partition("(")
    if bracket and name:
        raise InvalidInput(f"rule {rule!r} has a pattern, but rules go by the tool's name here; write {name!r}")
    if not rule or any(character.isspace() or character in "()," for character in rule):
        raise InvalidInput(f"rule {rule!r} is not the name of a tool")


def _narrow_enough(rule: str) -> None:
    """Allowing by ``*`` is for the tools of one server, named in full."""
    before, star, _ = rule.partition("*")
    if star and not (before.startswith("mcp__") and before.find("__", 6) > 0):
        raise InvalidInput(f"allow rule {rule!r} is too wide: '*' may only follow 'mcp__server__'; name the tool")


def _match(rules: tuple[str, ...], name: str) -> str:
    """Return the first rule that speaks of the tool, ``""`` when none does."""
    return next((rule for rule in rules if _speaks_of(rule, name)), "")


def _speaks_of(rule: str, name: str) -> bool:
    if "*" in rule:
        return matches_wildcards(rule, name)
    return name == rule or (rule.startswith("mcp__") and "__" not in rule[5:] and name.startswith(rule + "__"))
