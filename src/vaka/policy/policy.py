"""The permission policy: rules from every layer of settings, then the mode. Deny wins over ask, ask over allow."""

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.ports.policy import Policy
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import PROTECTED_LAYER, Allow, Ask, Deny, Grant, ToolSpec, Verdict
from vaka.policy.decision import (
    MODE_DECISIONS,
    AccessKind,
    Mode,
    PermissionDecision,
    is_stricter,
    parse_settings_mode,
    question_name_of,
    strictest_decision,
)
from vaka.policy.grants import SESSION_LAYER, build_narrow_rules, exact_path_rule, format_path, rules_of_grants
from vaka.policy.matching import host_of
from vaka.policy.paths import (
    ANY_CHILD,
    PathPattern,
    PathSegments,
    RuleKind,
    absolute_path,
    holds_secrets,
    is_in_bare_repository,
    is_inside,
    names_of,
    protected_part_of,
    split_path,
)
from vaka.policy.rules import KINDS, Layer, Rule, read_rules
from vaka.policy.tool_targets import (
    ToolTargets,
    access_of,
    builtin_name_of,
    is_command_tool,
    list_search_folders,
    raise_missing_target,
    read_targets,
    targets_of,
)

if TYPE_CHECKING:
    from vaka.policy.command_policy import CommandPolicy


_ACCESS_PHRASES: Mapping[AccessKind, str] = {
    "note": "keeps notes of the session", "read": "reads in the working directories",
    "reach": "reads outside the working directories", "edit": "changes a file", "change": "may change something",
}  # fmt: skip

_MAX_CACHED_TOOLS = 1024
"""Tools whose rules are kept at hand."""

_MAX_CACHED_POLICIES = 16
"""Policies with what people have allowed that are kept at hand."""

_RESTRICTING_KINDS: tuple[RuleKind, ...] = ("deny", "ask")


class LayeredPolicy:
    """Judges calls by the rules of all layers, given from the weakest to the strongest.

    A call that no rule speaks of is decided by the mode. Judging runs nothing and changes nothing; it only looks where
    links on the disk lead, since a rule holds for a file under each of its names.
    """

    def __init__(self, layers: Iterable[Layer] = (), *, cwd: str = "", home: str = "") -> None:
        """Read the rules. Raises ``ConfigError`` or ``InvalidInput`` for one that makes no sense."""
        self.cwd = os.path.abspath(cwd or os.curdir)  # noqa: PTH100  # without resolving links
        self.home = home or os.path.expanduser("~")  # noqa: PTH111
        self._start_folder = ""
        layers = list(layers)
        rules, self.notes = read_rules(layers, self.cwd, self.home)
        self.mode: Mode = self._resolve_mode(layers)
        self.directories = self._resolve_directories(layers)
        self._working_roots = {
            split_path(root) for folder in self.directories for root in (folder, os.path.realpath(folder))
        }
        self._exclusive = any(layer.exclusive for layer in layers)
        self._set_rules(rules)

    def _set_rules(self, rules: list[Rule]) -> None:
        """Judge by these rules from now on."""
        self.rules = rules
        self._by_kind = {kind: [rule for rule in rules if rule.kind == kind] for kind in KINDS}
        self._rules_by_answer: dict[str, list[Rule]] = {}
        for rule in rules:
            for text in rule.answers:
                self._rules_by_answer.setdefault(text, []).append(rule)
        self._tool_rules_cache: dict[str, list[list[Rule]]] = {}
        self._path_rules_cache: dict[tuple[RuleKind, str, bool], list[tuple[Rule, PathPattern]]] = {}
        self._command_policies: dict[str, CommandPolicy] = {}
        self._granted_policies: dict[tuple[Grant, ...], LayeredPolicy] = {}

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        """Return whether a call may run, must be asked about, or must not run."""
        decision = self.decide(spec, call.arguments)
        verdict = decision.verdict
        if not isinstance(verdict, Ask):
            return verdict
        folder = self._start_folder if is_command_tool(spec) else ""
        if decision.single_use:
            return msgspec.structs.replace(verdict, folder=folder)
        grant, scopes = self._offer_grant(spec, call.arguments, decision)
        return msgspec.structs.replace(verdict, grant=grant, scopes=scopes, folder=folder)

    def with_grants(self, grants: Sequence[Grant]) -> "LayeredPolicy":
        """Return these rules with what people have allowed: allow rules, before which those they answer are silent."""
        if not grants or self._exclusive:
            return self
        key = tuple(grants)
        found = self._granted_policies.get(key)
        if found is None:
            if len(self._granted_policies) >= _MAX_CACHED_POLICIES:
                self._granted_policies.clear()
            found = self._granted_policies[key] = copy.copy(self)
            found._set_rules([*self.rules, *rules_of_grants(grants, self.cwd, self.home)])  # noqa: SLF001  # of its own kind
        return found

    def in_folder(self, folder: str) -> "LayeredPolicy":
        """Return these rules, where commands begin in a folder; where a rule's own path begins stays as it is."""
        found = copy.copy(self)
        found._start_folder, found._granted_policies = folder, {}  # noqa: SLF001  # of its own kind
        return found

    def rule_for(self, call: ToolCall, spec: ToolSpec) -> str:
        """Return the rules, one per line, that mean just this call, or as little more as can be said; ``""``: none."""
        rule = "\n".join(self._narrow_rules(spec, call.arguments))
        return rule if rule and self.covers(rule, call, spec) else ""

    def covers(self, rule: str, call: ToolCall, spec: ToolSpec, folder: str = "") -> bool:
        """Return whether rules, one per line, mean this call. Raises ``InvalidInput`` when they make no sense.

        ``folder`` is where ``/x`` begins in them.
        """
        commands = is_command_tool(spec)
        mode = "default" if commands else "dontAsk"  # only among commands there are some that need no rule
        given = Layer(name="flag", allow=Grant(rule=rule).rules, mode=mode, folder=folder)
        alone = LayeredPolicy([given], cwd=self.cwd, home=self.home).in_folder(self._start_folder)
        decision = alone.decide(msgspec.structs.replace(spec, layer=SESSION_LAYER), call.arguments)
        by_rule = not commands or any("flag" in part.layer for part in decision.subcommands)
        return decision.decision == "allow" and by_rule

    def _narrow_rules(self, spec: ToolSpec, arguments: Mapping[str, Any], selected: Sequence[bool] = ()) -> list[str]:
        try:
            seen = self._relative_to_workdir(arguments) if is_command_tool(spec) else self
        except ValueError:
            return []
        return build_narrow_rules(spec, arguments, seen.names_of_path, selected)

    def _offer_grant(
        self, spec: ToolSpec, arguments: Mapping[str, Any], decision: PermissionDecision
    ) -> tuple[str, tuple[str, ...]]:
        """Return the rules that a yes may keep, and for how long that is of use: each is tried before it is told."""
        asking = [part.decision == "ask" for part in decision.subcommands]
        for parts in (asking, []) if asking else ([],):
            rules = self._narrow_rules(spec, arguments, parts)
            rule = "\n".join(self._argument_rules(decision.asks) or rules if rules == [spec.name] else rules)
            for answers, scopes in ((), ()), (decision.asks, ("once", "session")):
                grant = Grant(rule=rule, answers=answers)
                if rule and self.with_grants([grant]).decide(spec, arguments).decision == "allow":
                    return rule, scopes
        return "", ()

    def _argument_rules(self, asks: Sequence[str]) -> list[str]:
        """Return the rules that ask, when each of them looks at an argument: they say more than the tool's name."""
        about = {rule.text for rule in self._by_kind["ask"] if rule.match_kind == "field"}
        return [*asks] if asks and about.issuperset(asks) else []

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether a model is told of the tool: one that is denied whatever it is asked does not exist."""
        return not any(rule.match_kind == "tool" for rule in self._tool_rules(spec)[0])

    def decide(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> PermissionDecision:
        """Return the decision on a call with its reasons."""
        tool = targets_of(builtin_name_of(spec.name))
        try:
            decision = self._decide_by_target(spec, tool, arguments)
        except ValueError as error:
            decision = self._decide_unknown_target(spec, arguments, str(error))
        return self._deny_questions(decision, spec.name)

    def may_read(self, path: str) -> Verdict:
        """Return what deny and ask rules say of reading a file, whichever tool does it; nobody else is asked."""
        return self._decide_path(path, edits=False).rule_verdict

    def may_write(self, path: str) -> Verdict:
        """Return whether a file may be changed, whichever tool does it: by rules, protection and mode."""
        return self._decide_path(path, edits=True).rule_verdict

    # ------------------------------------------------------------------------------------------------ what is looked at

    def _decide_by_target(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        if tool.target_kind in ("read", "edit", "search"):
            return self._decide_files(spec, tool, arguments)
        if tool.target_kind == "command":
            return self._decide_command(spec, tool, arguments)
        words = read_targets(tool, arguments)
        host = ""
        if tool.target_kind == "url":
            host = host_of(words[0]) if len(words) == 1 else raise_missing_target(tool)
        said = self._decide_by_tool_rules(spec, arguments, words, host)
        target = f"domain:{host}" if host else words[0] if words and tool.target_kind == "words" else ""
        return said or self._decide_by_mode(
            access_of(spec, tool), spec.name, f"{spec.name}({target})" if target else spec.name
        )

    def _decide_by_tool_rules(
        self, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str] | None = None, host: str = ""
    ) -> PermissionDecision | None:
        """Return what rules say that look at no path and no command, and then handing the tool over in code."""
        for rules in self._tool_rules(spec):
            met = [rule for rule in rules if _matches_call(rule, spec, arguments, words or [], host)]
            if self._rules_by_answer:
                met = [rule for rule in met if not self._is_answered(rule, spec, arguments, words or [], host)]
            if met:
                return _decide_by_rules(met, spec.name)
        return self._allow_code_tool(spec)

    def _is_answered(
        self, ask_rule: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str
    ) -> bool:
        """Return whether a person has answered a rule that asks with one that allows this call."""
        given = self._rules_by_answer.get(ask_rule.text, ()) if ask_rule.kind == "ask" else ()
        return any(
            rule.match_kind not in ("path", "command") and rule.names_tool(spec.name)
            and _matches_call(rule, spec, arguments, words, host)
            for rule in given
        )  # fmt: skip

    def _tool_rules(self, spec: ToolSpec) -> list[list[Rule]]:
        """Return the rules that speak of a tool and need neither path nor command, by kind, the strictest first."""
        found = self._tool_rules_cache.get(spec.name)
        if found is None:
            plain = [
                rule
                for rule in self.rules
                if rule.match_kind not in ("path", "command") and self._rule_names_tool(rule, spec)
            ]
            found = [[rule for rule in plain if rule.kind == kind] for kind in KINDS]
            if len(self._tool_rules_cache) < _MAX_CACHED_TOOLS:
                self._tool_rules_cache[spec.name] = found
        return found

    def _decide_command(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        commands = read_targets(tool, arguments)
        command = commands[0] if commands else raise_missing_target(tool)
        said = self._decide_by_tool_rules(spec, arguments)
        if said is not None and said.decision == "deny":
            return said
        allowed = self._allow_code_tool(spec) or self._decide_by_mode("change", spec.name, spec.name)
        judge = self._command_policy(builtin_name_of(spec.name), exact_name=spec.name)
        seen = self._relative_to_workdir(arguments)
        found = judge.decide(
            command, allowed, profile=self.mode != "dontAsk", may_write=seen.may_write,
            may_read=seen._may_command_read, inside=seen._is_in_workspace, start=seen.cwd,  # noqa: SLF001  # of its own kind
        )  # fmt: skip
        if said is None or said.decision != "ask" or judge.is_answered(command, said.asks):
            return found
        return msgspec.structs.replace(strictest_decision([said, found]), subcommands=found.subcommands)

    def _relative_to_workdir(self, arguments: Mapping[str, Any]) -> "LayeredPolicy":
        """Return these rules as they look at paths from where a command begins. Raises ``ValueError`` for no place."""
        wanted: Any = arguments.get("workdir") or ""
        if not isinstance(wanted, str) or "\0" in wanted:
            raise ValueError("workdir is no folder")
        if not (self._start_folder or wanted):
            return self
        found = copy.copy(self)
        found.cwd = os.path.realpath(os.path.join(self._start_folder or self.cwd, wanted))  # noqa: PTH118
        return found

    def _command_policy(self, tool: str, *, exact_name: str) -> "CommandPolicy":
        if exact_name not in self._command_policies:
            from vaka.policy.command_policy import CommandPolicy  # noqa: PLC0415  # a grammar that most programs never need

            tight = [rule for rule in self.rules if rule.kind != "allow" and rule.names_tool(tool)]
            allow = [rule for rule in self._by_kind["allow"] if rule.names_tool(exact_name)]
            self._command_policies[exact_name] = CommandPolicy(
                [*(rule for rule in tight if rule.match_kind == "command"), *allow]
            )
        return self._command_policies[exact_name]

    def _is_in_workspace(self, path: str) -> bool:
        try:
            names = self.names_of_path(path, children=False)
        except ValueError:
            return False
        if not all(any(is_inside(name, folder) for folder in self._working_roots) for name in names):
            return False
        return not any(is_in_bare_repository(name, self._working_roots) for name in names)

    def _decide_files(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        edits, whole = tool.target_kind == "edit", tool.target_kind == "search"
        paths = (
            list(list_search_folders(builtin_name_of(spec.name), arguments)) if whole else read_targets(tool, arguments)
        )
        if not paths:
            raise_missing_target(tool)
        said = self._decide_by_tool_rules(spec, arguments)
        if said is not None and said.decision == "deny":
            return said
        found = [
            self._decide_file(spec, name, said, edits=edits)
            for path in paths
            for name in self.names_of_path(path, children=whole)
        ]
        return strictest_decision(found)

    def _decide_file(
        self, spec: ToolSpec | None, path: PathSegments, tool_decision: PermissionDecision | None, *, edits: bool
    ) -> PermissionDecision:
        """Return the decision on one name of a file; ``said`` is what rules say of the tool whatever it works on."""
        tool = builtin_name_of(spec.name) if spec is not None else ""
        if (
            tool_decision is not None
            and tool_decision.decision == "ask"
            and self._is_path_answered(path, tool_decision.asks, tool, edits=edits)
        ):
            tool_decision = None
        for kind in _RESTRICTING_KINDS:
            if rules := self._path_rules(kind, tool, path, edits=edits):
                ruled = _decide_by_rules(rules, format_path(path))
                return strictest_decision([ruled, tool_decision]) if tool_decision is not None else ruled
        if tool_decision is not None and tool_decision.decision == "ask":
            return tool_decision
        if edits and (what := protected_part_of(path)):
            if self.mode == "plan":
                reason = f"{format_path(path)}: {what} decides what runs or what is allowed, and a plan changes nothing"
                return PermissionDecision(decision="deny", rule=what, layer=PROTECTED_LAYER, reason=reason)
            reason = (
                f"{format_path(path)}: {what} decides what runs or what is allowed, so a person is asked in every mode"
            )
            subject = exact_path_rule(path, edits=edits)
            asks = (question_name_of(what, PROTECTED_LAYER, subject),)
            return PermissionDecision(
                decision="ask", rule=what, layer=PROTECTED_LAYER, reason=reason, subject=subject, asks=asks
            )
        if tool_decision is not None:
            return tool_decision
        if rules := self._path_rules("allow", tool, path, edits=edits):
            return _decide_by_rules(rules, format_path(path))
        near = any(is_inside(path, folder) for folder in self._working_roots)
        act: AccessKind = ("edit" if near else "change") if edits else ("read" if near else "reach")
        return self._decide_by_mode(act, format_path(path), exact_path_rule(path, edits=edits))

    def _decide_path(self, path: str, *, edits: bool) -> PermissionDecision:
        """Return the decision on a file that no tool of ours opens."""
        try:
            names = self.names_of_path(path, children=False)
        except ValueError as error:
            reason = f"{path!r}: {error}"
            return self._deny_questions(
                PermissionDecision(decision="ask", layer="mode", rule=self.mode, reason=reason), path
            )
        if not edits:
            return self._deny_questions(strictest_decision(self._decide_read(name) for name in names), path)
        return self._deny_questions(
            strictest_decision(self._decide_file(None, name, None, edits=True) for name in names), path
        )

    def _may_command_read(self, path: str) -> Verdict:
        """Return what is said of a file that a command reads: where keys lie, whatever leads there, the mode asks."""
        try:
            names = self.names_of_path(path, children=False)
        except ValueError:
            return self.may_read(path)
        said = self._deny_questions(strictest_decision(self._decide_read(name) for name in names), path).rule_verdict
        if not isinstance(said, Allow) or self.mode == "dontAsk" or path.startswith("/dev/"):
            return said
        key = next((name for name in map(format_path, names) if holds_secrets(name)), "")
        return Ask(f"{path} leads to {key}, a place where keys lie", self.mode, "mode") if key else said

    def _decide_read(self, path: PathSegments) -> PermissionDecision:
        for kind in _RESTRICTING_KINDS:
            if rules := self._path_rules(kind, "", path, edits=False):
                return _decide_by_rules(rules, format_path(path))
        return PermissionDecision(decision="allow", rule=self.mode, layer="mode")

    def names_of_path(self, path: str, *, children: bool) -> list[PathSegments]:
        """Return each name of a file; a search looks at what is in a folder, too."""
        names = [split_path(name) for name in names_of(absolute_path(path, self.cwd, self.home))]
        return [(*name, ANY_CHILD) for name in names] if children else names

    def _path_rules(self, kind: RuleKind, tool: str, path: PathSegments, *, edits: bool) -> list[Rule]:
        known = self._path_rules_cache.get((kind, tool, edits))
        if known is None:
            about = [rule for rule in self._by_kind[kind] if rule.applies_to_access(tool, edits=edits)]
            known = self._path_rules_cache[kind, tool, edits] = [
                (rule, rule.path) for rule in about if rule.path is not None
            ]
        found = [rule for rule, pattern in known if pattern.covers(path)]
        if kind != "ask" or not self._rules_by_answer:
            return found
        return [rule for rule in found if not self._is_path_answered(path, (rule.text,), tool, edits=edits)]

    def _is_path_answered(self, path: PathSegments, asks: Iterable[str], tool: str, *, edits: bool) -> bool:
        """Return whether a person has answered all these rules with some that allow this path."""
        return bool(self._rules_by_answer) and all(
            any(
                rule.path is not None and rule.applies_to_access(tool, edits=edits) and rule.path.covers(path)
                for rule in self._rules_by_answer.get(text, ())
            )
            for text in asks
        )

    # ------------------------------------------------------------------------------------------------ where no rule is

    def _allow_code_tool(self, spec: ToolSpec) -> PermissionDecision | None:
        if spec.layer != "code" or (self.mode == "plan" and spec.effect != "read"):
            return None
        return PermissionDecision(
            decision="allow", rule=spec.name, layer="code", reason=f"{spec.name} was handed over in code"
        )

    def _decide_by_mode(self, access: AccessKind, what: str, subject: str) -> PermissionDecision:
        answer = MODE_DECISIONS[self.mode][access]
        does = {"allow": "allows it", "ask": "asks", "deny": "does not allow it"}[answer]
        reason = f"{what}: no rule speaks of it; it {_ACCESS_PHRASES[access]}, and the mode {self.mode} {does}"
        return PermissionDecision(
            decision=answer, rule=self.mode, layer="mode", reason=reason, subject=subject, asks=(self.mode,)
        )

    def _decide_unknown_target(
        self, spec: ToolSpec, arguments: Mapping[str, Any], reason_unknown: str
    ) -> PermissionDecision:
        """Return the decision on a call of which nobody can tell what it works on: no pattern allows it."""
        said = self._decide_by_tool_rules(spec, arguments)
        if said is None and self.mode == "bypassPermissions":
            said = self._decide_by_mode("change", spec.name, spec.name)
        if said is not None and (said.decision != "allow" or not self._may_be_restricted(spec)):
            return said
        reason = f"{spec.name}: what it works on cannot be told: {reason_unknown}"
        subject = f"{spec.name}({reason_unknown})"
        return PermissionDecision(
            decision="ask", rule=self.mode, layer="mode", reason=reason, subject=subject, asks=(self.mode,)
        )

    def _may_be_restricted(self, spec: ToolSpec) -> bool:
        return any(
            rule.kind != "allow" and rule.match_kind in ("path", "domain", "command")
            and (self._rule_names_tool(rule, spec) or rule.path is not None)
            for rule in self.rules
        )  # fmt: skip

    def _deny_questions(self, decision: PermissionDecision, what: str) -> PermissionDecision:
        """In ``dontAsk`` a question is a no."""
        if self.mode != "dontAsk" or decision.decision != "ask":
            return decision
        return PermissionDecision(
            decision="deny", rule=decision.rule, layer=decision.layer, subcommands=decision.subcommands,
            reason=f"{decision.reason or what}; in the mode dontAsk nobody is asked",
        )  # fmt: skip

    def _rule_names_tool(self, rule: Rule, spec: ToolSpec) -> bool:
        """Another name of a built-in tool is no way around a rule, nor a way to be allowed by one."""
        return rule.names_tool(spec.name) or (rule.kind != "allow" and rule.names_tool(builtin_name_of(spec.name)))

    # ------------------------------------------------------------------------------------------------ what layers say

    def _resolve_mode(self, layers: list[Layer]) -> Mode:
        mode: Mode = "default"
        for layer in layers:
            if not layer.mode:
                continue
            where = f"{layer.origin or layer.name}: defaultMode {layer.mode!r}"
            wanted = _parse_layer_mode(layer, where)
            if wanted == "bypassPermissions" and layer.project:
                self.notes.append(f"{where} does not count: only the user or a manager may set it so")
            elif not layer.trusted and wanted != mode and not is_stricter(wanted, mode):
                self.notes.append(f"{where} does not count: this folder is not trusted; --trust counts it")
            else:
                mode = wanted
        if mode == "bypassPermissions" and any(layer.no_bypass for layer in layers):
            self.notes.append("the mode bypassPermissions is switched off by the settings; the mode is default")
            return "default"
        return mode

    def _resolve_directories(self, layers: list[Layer]) -> list[str]:
        found = [self.cwd]
        for layer in layers:
            for folder in layer.directories:
                if layer.trusted:
                    found.append(os.path.normpath(absolute_path(folder, self.cwd, self.home)))
                else:
                    where = f"{layer.origin or layer.name}: additionalDirectories {folder!r}"
                    self.notes.append(f"{where} does not count: this folder is not trusted; --trust counts it")
        return list(dict.fromkeys(found))


def _parse_layer_mode(layer: Layer, where: str) -> Mode:
    try:
        return parse_settings_mode(layer.mode)
    except InvalidInput as error:
        if layer.name == "flag":
            raise
        raise ConfigError(f"{where}: {error}") from error


def _decide_by_rules(rules: list[Rule], what: str) -> PermissionDecision:
    """Return what rules of one kind say; who agrees to what one of them asks has not agreed to the others."""
    rule = rules[0]
    does = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.kind]
    reason = f"the rule {rule.text} {does} {what}"
    texts = tuple(sorted({rule.text for rule in rules}))
    return PermissionDecision(
        decision=rule.kind, rule=rule.text, layer=rule.layer, reason=reason, subject=" & ".join(texts), asks=texts
    )


def _matches_call(rule: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str) -> bool:
    if rule.match_kind == "tool":
        return True
    if rule.match_kind == "field":
        return rule.matches_argument(arguments, spec.parameters if rule.kind != "allow" else {})
    if rule.match_kind == "words":
        return rule.matches_words(words)
    return rule.domain is not None and bool(host) and rule.domain.covers(host)


def make_read_filter(policy: Policy) -> Callable[[str], bool] | None:
    """Return what tells whether a file may be read, by its path; ``None`` when nothing is kept from being read."""
    if not isinstance(policy, LayeredPolicy):
        return None
    tight = ("deny", "ask") if policy.mode == "dontAsk" else ("deny",)
    if not any(rule.kind in tight and rule.path is not None for rule in policy.rules):
        return None
    return lambda path: is_readable(policy, path)


def is_readable(policy: LayeredPolicy, path: str, cwd: str = "") -> bool:
    """Return whether the rules let a file be read, under each of its names; a relative path begins at ``cwd``."""
    return not isinstance(policy.may_read(absolute_path(path, cwd or policy.cwd, policy.home)), Deny)
