"""Which rules match a call, and the decision of those that do."""

from collections.abc import Mapping
from typing import Any

from vaka.core.types.tool import ToolSpec
from vaka.policy.decision import PermissionDecision
from vaka.policy.rules import Rule
from vaka.policy.tool_targets import builtin_name_of


def decide_by_rules(rules: list[Rule], what: str) -> PermissionDecision:
    """Return the decision of rules of one kind; an approval must answer each of them."""
    rule = rules[0]
    does = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.kind]
    reason = f"the rule {rule.text} {does} {what}"
    texts = tuple(sorted({rule.text for rule in rules}))
    return PermissionDecision(
        decision=rule.kind, rule=rule.text, layer=rule.layer, reason=reason, subject=" & ".join(texts), asks=texts
    )


def names_tool(rule: Rule, spec: ToolSpec) -> bool:
    """An alias of a built-in tool does not evade a rule that restricts, nor is it allowed by one."""
    return rule.names_tool(spec.name) or (rule.kind != "allow" and rule.names_tool(builtin_name_of(spec.name)))


def matches_call(rule: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str) -> bool:
    if rule.match_kind == "tool":
        return True
    if rule.match_kind == "field":
        return rule.matches_argument(arguments, spec.parameters if rule.kind != "allow" else {})
    if rule.match_kind == "words":
        return rule.matches_words(words)
    return rule.domain is not None and bool(host) and rule.domain.covers(host)


def restricts_target(rule: Rule, spec: ToolSpec) -> bool:
    """Return whether a rule may deny a call of the tool, or ask about it, because of what the call names."""
    is_about_targets = rule.kind != "allow" and rule.match_kind in ("path", "domain", "command", "host")
    return is_about_targets and (names_tool(rule, spec) or rule.path is not None)
