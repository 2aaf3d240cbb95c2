"""The permission policy: rules from every settings layer, then the mode. Deny wins over ask, ask over allow."""

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.ports.tool import shell_folder_key
from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import (
    PROTECTED_LAYER,
    SANDBOX_ONLY_RULE,
    Allow,
    Ask,
    Deny,
    Grant,
    Mode,
    ToolSpec,
    Verdict,
)
from vaka.core.types.traits import NO_TRAITS, ToolTraits, add_defaults
from vaka.matching.hosts import host_of
from vaka.matching.sensitive_paths import control_part_of, holds_secrets, names_plugin_state, protected_part_of
from vaka.policy.command_access import (
    HOSTS_ARGUMENT,
    HostRules,
    RequestedHost,
    ask_for_host,
    ask_for_unsandboxed,
    leaves_sandbox,
    name_unsandboxed_rule,
    requested_hosts_of,
)
from vaka.policy.decision import (
    MODE_DECISIONS,
    AccessKind,
    DecisionKind,
    FolderRules,
    FolderUse,
    PermissionDecision,
    question_name_of,
    strictest_decision,
)
from vaka.policy.grants import SESSION_LAYER, build_narrow_rules, exact_path_rule, format_path, rules_of_grants
from vaka.policy.paths import (
    ANY_CHILD,
    PathPattern,
    PathSegments,
    absolute_path,
    is_in_bare_repository,
    is_inside,
    names_of,
    resolve_links,
    split_path,
)
from vaka.policy.rules import KINDS, Layer, Rule, decide_by_rules, read_rules, resolve_directories, resolve_mode
from vaka.policy.tool_targets import (
    FOLDER_TOOLS,
    ToolTargets,
    access_of,
    builtin_name_of,
    find_file_targets,
    is_command_tool,
    names_files,
    raise_missing_target,
    read_targets,
    spec_of,
    target_paths_of,
    targets_of,
    works_in_folder,
)

if TYPE_CHECKING:
    from vaka.policy.bash.judge import CommandPolicy
    from vaka.policy.covered_paths import CoveredFiles


_ACCESS_PHRASES: Mapping[AccessKind, str] = {
    "note": "keeps notes of the session",
    "read": "reads in the working directories",
    "reach": "reads outside the working directories",
    "edit": "changes a file",
    "change": "may change something",
}

_MAX_CACHED_TOOLS = 1024
_MAX_CACHED_POLICIES = 16
_RESTRICTING_KINDS: tuple[DecisionKind, ...] = ("deny", "ask")


class LayeredPolicy:
    """Judges calls by the rules of all layers, ordered from the weakest to the strongest.

    The mode decides on a call that no rule matches. Judging has no side effects; it resolves symbolic links, since a
    rule holds for a file under each of its names.
    """

    def __init__(self, layers: Iterable[Layer] = (), *, cwd: str = "", home: str = "", trusted: bool = True) -> None:
        """Read the rules. Raises ``ConfigError`` or ``InvalidInput`` for an invalid one.

        In a folder that is not ``trusted``, git is asked about where the repository names programs that it would run.
        """
        self.trusted = trusted
        self.cwd = os.path.abspath(cwd or os.curdir)  # noqa: PTH100  # without resolving links
        self.home = home or os.path.expanduser("~")  # noqa: PTH111
        self._start_folder = ""
        self._declared_targets: tuple[ToolTargets, ...] = ()
        """The arguments of the judged tool that name files, as the tool declares."""
        self._layers = layers = list(layers)
        rules, self.notes = read_rules(layers, self.cwd, self.home)
        self.mode: Mode = resolve_mode(layers, self.notes)
        self.directories = resolve_directories(layers, self.cwd, self.home, self.notes)
        self._working_roots = {
            split_path(root) for folder in self.directories for root in (folder, os.path.realpath(folder))
        }
        self._exclusive = any(layer.exclusive for layer in layers)
        self._set_rules(rules)

    def _set_rules(self, rules: list[Rule]) -> None:
        self.rules = rules
        self._by_kind = {kind: [rule for rule in rules if rule.kind == kind] for kind in KINDS}
        self._rules_by_answer: dict[str, list[Rule]] = {}
        for rule in rules:
            for text in rule.answers:
                self._rules_by_answer.setdefault(text, []).append(rule)
        self._tool_rules_cache: dict[str, list[list[Rule]]] = {}
        self._path_rules_cache: dict[tuple[DecisionKind, str, bool], list[tuple[Rule, PathPattern]]] = {}
        self._command_policies: dict[tuple[str, bool], CommandPolicy] = {}
        self._host_rules_cache: dict[str, HostRules] = {}
        self._granted_policies: dict[tuple[Grant, ...], LayeredPolicy] = {}
        self._policies_by_targets: dict[tuple[ToolTargets, ...], LayeredPolicy] = {}

    def judge(self, call: ToolCall, spec: ToolSpec, path: AgentPath) -> Verdict:
        """Return whether a call may run, must be asked about, or must not run."""
        decision = self.decide(spec, call.arguments)
        verdict = decision.verdict
        if isinstance(verdict, Deny):
            return verdict
        folder = self._start_folder if is_command_tool(spec) else None
        if folder is not None:
            verdict = msgspec.structs.replace(verdict, access=self._host_rules(spec.name).access(call.arguments))
        if isinstance(verdict, Allow):
            return verdict if folder is None else msgspec.structs.replace(verdict, folder=folder)
        if decision.single_use:
            return msgspec.structs.replace(verdict, folder=folder)
        grant, scopes = self._offer_grant(spec, call.arguments, decision)
        return msgspec.structs.replace(verdict, grant=grant, scopes=scopes, folder=folder)

    def with_grants(self, grants: Sequence[Grant]) -> "LayeredPolicy":
        """Return this policy with approved rules added; they also answer the ask rules that they were approved for."""
        if not grants or self._exclusive:
            return self
        key = tuple(grants)
        policy = self._granted_policies.get(key)
        if policy is None:
            if len(self._granted_policies) >= _MAX_CACHED_POLICIES:
                self._granted_policies.clear()
            policy = self._granted_policies[key] = copy.copy(self)
            policy._set_rules([*self.rules, *rules_of_grants(grants, self.cwd, self.home)])  # noqa: SLF001  # same class
        return policy

    def for_call(
        self, spec: ToolSpec, path: AgentPath, get_value: Callable[[str], JSON], traits: ToolTraits = NO_TRAITS
    ) -> "LayeredPolicy":
        """Return this policy for the folder in which the next command of the agent at ``path`` starts.

        The files that ``traits`` of other tools than the built-in ones name are judged too.
        """
        is_declared = traits is not NO_TRAITS and spec.layer != "builtin"
        policy = self._with_targets(find_file_targets(traits)) if is_declared else self
        if not is_command_tool(spec):
            return policy
        folder = get_value(shell_folder_key(path))
        return policy.in_folder(folder) if folder and isinstance(folder, str) else policy

    def _with_targets(self, targets: tuple[ToolTargets, ...]) -> "LayeredPolicy":
        if not targets:
            return self
        if targets not in self._policies_by_targets:
            if len(self._policies_by_targets) >= _MAX_CACHED_POLICIES:
                self._policies_by_targets.clear()
            policy = self._policies_by_targets[targets] = copy.copy(self)
            policy._declared_targets, policy._granted_policies = targets, {}  # noqa: SLF001  # same class
        return self._policies_by_targets[targets]

    def in_folder(self, folder: str) -> "LayeredPolicy":
        """Return this policy for commands that start in ``folder``; the anchors of path rules do not change."""
        policy = copy.copy(self)
        policy._start_folder = folder  # noqa: SLF001  # same class
        policy._granted_policies, policy._policies_by_targets = {}, {}  # noqa: SLF001
        return policy

    def in_workspace(self, folder: str) -> "LayeredPolicy":
        """Return a policy of the same rules for tools that work in another folder only; ``""``: tools without files.

        Further directories of the layers do not count there. Without a folder, all file and command tools are denied.
        """
        layers = [msgspec.structs.replace(layer, directories=()) for layer in self._layers]
        layers.append(Layer(name="workspace", deny=(SANDBOX_ONLY_RULE,)))
        if folder:
            return LayeredPolicy(layers, cwd=folder, home=self.home, trusted=self.trusted)
        layers.append(Layer(name="workspace", deny=FOLDER_TOOLS))
        return LayeredPolicy(layers, cwd=self.cwd, home=self.home, trusted=self.trusted)

    def rule_for(self, call: ToolCall, spec: ToolSpec) -> str:
        """Return rules, one per line, that match this call as narrowly as rules can; ``""`` when there are none."""
        rule = "\n".join(self._narrow_rules(spec, call.arguments))
        return rule if rule and self.covers(rule, call, spec) else ""

    def works_in_folder(self, spec: ToolSpec) -> bool:
        """Return whether the calls of a tool read, change or run files, whose relative paths start from ``cwd``."""
        return bool(self._declared_targets) or works_in_folder(spec.name)

    def covers(self, rule: str, call: ToolCall, spec: ToolSpec, folder: str = "") -> bool:
        """Return whether rules, one per line, allow this call. Raises ``InvalidInput`` for an invalid rule.

        ``folder`` is the anchor of ``/x`` in them.
        """
        commands = is_command_tool(spec)
        mode = "default" if commands else "dontAsk"  # only commands can be allowed without a rule
        layer = Layer(name="flag", allow=Grant(rule=rule).rules, mode=mode, folder=folder)
        alone = LayeredPolicy([layer], cwd=self.cwd, home=self.home).in_folder(self._start_folder)
        decision = alone.decide(msgspec.structs.replace(spec, layer=SESSION_LAYER), call.arguments)
        by_rule = not commands or bool(call.arguments.get(HOSTS_ARGUMENT))  # no mode allows a host
        by_rule = by_rule or any("flag" in part.layer for part in decision.subcommands)
        return decision.decision == "allow" and by_rule

    def _narrow_rules(self, spec: ToolSpec, arguments: Mapping[str, Any], selected: Sequence[bool] = ()) -> list[str]:
        try:
            policy = self._relative_to_workdir(arguments) if is_command_tool(spec) else self
        except ValueError:
            return []
        return build_narrow_rules(spec, arguments, policy.names_of_path, selected)

    def _offer_grant(
        self, spec: ToolSpec, arguments: Mapping[str, Any], decision: PermissionDecision
    ) -> tuple[str, tuple[str, ...]]:
        """Return the rules that an approval may add, and the scopes in which they help; each is tried first."""
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
        """Return the rules that ask if each matches an argument: they are narrower than the tool's name."""
        texts = {rule.text for rule in self._by_kind["ask"] if rule.match_kind == "field"}
        return [*asks] if asks and texts.issuperset(asks) else []

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether the model sees the tool: not when a rule denies every call of it."""
        return not [rule for rule in self._tool_rules(spec)[0] if rule.match_kind == "tool"]

    def decide(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> PermissionDecision:
        """Return the decision on a call with its reasons."""
        decision = self._decide(spec, targets_of(spec.name), arguments)
        if self._declared_targets:  # what a tool says about itself never allows a call
            given = add_defaults(arguments, spec.parameters)
            named = [each for each in self._declared_targets if names_files(each, given)]
            decision = strictest_decision([decision, *(self._decide(spec, each, given) for each in named)])
        return decision if decision.decision == "allow" else self._deny_questions(decision, spec.name)

    def _decide(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        try:
            return self._decide_by_target(spec, tool, arguments)
        except ValueError as error:
            return self._decide_unknown_target(spec, arguments, str(error))

    def may_read(self, path: str) -> Verdict:
        """Return what deny and ask rules say about reading a file with any tool; the mode is not consulted."""
        return self._decide_path(path, edits=False).verdict_on_path

    def may_write(self, path: str) -> Verdict:
        """Return whether any tool may change a file: by rules, protection and mode."""
        return self._decide_path(path, edits=True).verdict_on_path

    def may_use_folder(self, path: str, use: FolderUse, search: "CoveredFiles | None" = None) -> Verdict:
        """Return a question or a denial if rules deny or ask about files of a folder that are used."""
        rules = self._restricting_path_rules(edits=use.writes)
        found = (search or _new_file_search()).decide(path, use, rules, cwd=self.cwd, home=self.home)
        return Allow(self.mode, "mode") if found is None else self._deny_questions(found, path).rule_verdict

    def _restricting_path_rules(self, *, edits: bool) -> list[tuple[Rule, PathPattern]]:
        return [item for kind in _RESTRICTING_KINDS for item in self.compiled_path_rules(kind, "", edits=edits)]

    # ------------------------------------------------------------------------------------------------ targets

    def _decide_by_target(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        if tool.target_kind in ("read", "edit", "search"):
            return self._decide_files(spec, tool, arguments)
        if tool.target_kind == "command":
            return self._decide_command(spec, tool, arguments)
        words = read_targets(tool, arguments)
        host = ""
        if tool.target_kind == "url":
            host = host_of(words[0]) if len(words) == 1 else raise_missing_target(tool)
        target = f"domain:{host}" if host else words[0] if words and tool.target_kind == "words" else ""
        subject = f"{spec.name}({target})" if target else spec.name
        ruled = self._decide_by_tool_rules(spec, arguments, words, host)
        return ruled or self._decide_by_mode(access_of(spec, tool), spec.name, subject)

    def _decide_by_tool_rules(
        self, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str] | None = None, host: str = ""
    ) -> PermissionDecision | None:
        """Decide by rules that match neither a path nor a command; else a tool from code is allowed."""
        for rules in filter(None, self._tool_rules(spec)):
            matching = [rule for rule in rules if rule.matches_call(spec, arguments, words or [], host)]
            if self._rules_by_answer:
                matching = [one for one in matching if not self._is_answered(one, spec, arguments, words or [], host)]
            if matching:
                return decide_by_rules(matching, spec.name)
        return self._allow_code_tool(spec)

    def _is_answered(
        self, ask_rule: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str
    ) -> bool:
        """Return whether a grant for this ask rule allows the call."""
        granted = self._rules_by_answer.get(ask_rule.text, ()) if ask_rule.kind == "ask" else ()
        return any(
            rule.match_kind not in ("path", "command", "host")
            and rule.names_tool(spec.name)
            and rule.matches_call(spec, arguments, words, host)
            for rule in granted
        )

    def _tool_rules(self, spec: ToolSpec) -> list[list[Rule]]:
        """Return the rules of a tool that match neither a path nor a command, by kind, the strictest first."""
        cached = self._tool_rules_cache.get(spec.name)
        if cached is None:
            other = [one for one in self.rules if one.match_kind not in ("path", "command", "host")]
            rules = [one for one in other if one.covers_tool(spec) and not one.unsandboxed]
            cached = [[rule for rule in rules if rule.kind == kind] for kind in KINDS]
            if len(self._tool_rules_cache) < _MAX_CACHED_TOOLS:
                self._tool_rules_cache[spec.name] = cached
        return cached

    def _decide_command(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        commands = read_targets(tool, arguments)
        command = commands[0] if commands else raise_missing_target(tool)
        ruled = self._decide_by_tool_rules(spec, arguments)
        if ruled is not None and ruled.decision == "deny":
            return ruled
        outside, hosts = leaves_sandbox(arguments), requested_hosts_of(arguments)
        default = self._allow_code_tool(spec) or self._decide_by_mode("change", spec.name, spec.name)
        default = ask_for_unsandboxed(spec.name, changes=self.mode != "plan") if outside else default
        judge = self._command_policy(spec.name, outside=outside)
        local = self._relative_to_workdir(arguments)
        decision = judge.decide(
            command,
            default,
            use_profile=self.mode != "dontAsk" and not outside,
            may_write=local.may_write,
            start=local.cwd,
            may_read=local._may_command_read,  # noqa: SLF001  # same class
            folders=local._folder_rules(),  # noqa: SLF001
        )
        denied = self.compiled_path_rules("deny", "", edits=True)  # a rule that denies reading denies changing
        if denied and decision.decision == "allow":
            decision = self._ask_in_large_folders(decision, judge, command, denied)
        asked = [ruled] if ruled and ruled.decision == "ask" and not judge.is_answered(command, ruled.asks) else []
        if outside:
            decision = name_unsandboxed_rule(decision, self.rules)
            asked += [] if any(part.rule for part in decision.subcommands) else [default]
        asked += [decision, *(self._decide_host(spec, host) for host in hosts)]
        return msgspec.structs.replace(strictest_decision(asked), subcommands=decision.subcommands)

    def _ask_in_large_folders(
        self,
        decision: PermissionDecision,
        judge: "CommandPolicy",
        command: str,
        denied: Iterable[tuple[Rule, PathPattern]],
    ) -> PermissionDecision:
        from vaka.policy.large_folders import LARGE_FOLDER_QUESTION, ask_in_large_folders  # noqa: PLC0415  # rare

        if judge.is_answered(command, (LARGE_FOLDER_QUESTION,)):
            return decision
        return ask_in_large_folders(decision, denied, self.directories)

    def _decide_host(self, spec: ToolSpec, host: RequestedHost) -> PermissionDecision:
        """Return the decision on a host that a command asks for; only a rule or a person allows it."""
        rules = self._host_rules(spec.name)
        found = next((found for kind in KINDS if (found := rules.find(kind, host))), None)
        return decide_by_rules(found, host.text) if found else ask_for_host(host, f"{spec.name}(domain:{host.text})")

    def _host_rules(self, name: str) -> HostRules:
        if name not in self._host_rules_cache:
            rules = [rule for rule in self.rules if rule.host is not None and rule.names_tool(builtin_name_of(name))]
            self._host_rules_cache[name] = HostRules(rules, self._rules_by_answer)
        return self._host_rules_cache[name]

    def _folder_rules(self) -> FolderRules:
        restricted = any(self._restricting_path_rules(edits=edits) for edits in (False, True))
        may_use = partial(self.may_use_folder, search=_new_file_search())
        return FolderRules(
            self._is_in_workspace, may_use, restricted, None if self.trusted else self._find_git_programs
        )

    def _find_git_programs(self, path: str, reads: bool) -> str:
        from vaka.policy.git_programs import find_git_programs  # noqa: PLC0415  # most runs never start git

        return find_git_programs(resolve_links(absolute_path(path, self.cwd, self.home)), reads=reads)

    def _relative_to_workdir(self, arguments: Mapping[str, Any]) -> "LayeredPolicy":
        """Return this policy for paths relative to a command's folder. Raises ``ValueError`` for a bad ``workdir``."""
        workdir: Any = arguments.get("workdir") or ""
        if not isinstance(workdir, str) or "\0" in workdir:
            raise ValueError("workdir is not a folder")
        if not (self._start_folder or workdir):
            return self
        policy = copy.copy(self)
        policy.cwd = resolve_links(os.path.join(self._start_folder or self.cwd, workdir))  # noqa: PTH118
        return policy

    def _command_policy(self, name: str, *, outside: bool = False) -> "CommandPolicy":
        if (name, outside) not in self._command_policies:
            from vaka.policy.bash.judge import CommandPolicy  # noqa: PLC0415  # loads the bash grammar

            tool = builtin_name_of(name)
            tight = [
                rule
                for rule in self.rules
                if rule.kind != "allow"
                and rule.names_tool(tool)
                and (rule.match_kind == "command" if not rule.unsandboxed else outside)
            ]
            allow = [rule for rule in self._by_kind["allow"] if rule.names_tool(name) and rule.unsandboxed == outside]
            self._command_policies[name, outside] = CommandPolicy([*tight, *allow])
        return self._command_policies[name, outside]

    def _is_in_workspace(self, path: str) -> bool:
        try:
            names = self.names_of_path(path, children=False)
        except ValueError:
            return False
        if not all(any(is_inside(name, folder) for folder in self._working_roots) for name in names):
            return False
        return not any(is_in_bare_repository(name, self._working_roots) for name in names)

    def _decide_files(self, spec: ToolSpec, tool: ToolTargets, arguments: Mapping[str, Any]) -> PermissionDecision:
        paths = target_paths_of(tool, arguments)
        if not paths:
            raise_missing_target(tool)
        ruled = self._decide_by_tool_rules(spec, arguments)
        if ruled is not None and ruled.decision == "deny":
            return ruled
        names = [name for path in paths for name in self.names_of_path(path, children=tool.target_kind == "search")]
        edits = tool.target_kind == "edit"
        return strictest_decision(self._decide_file(spec, name, ruled, edits=edits) for name in names)

    def _decide_file(
        self, spec: ToolSpec | None, path: PathSegments, tool_decision: PermissionDecision | None, *, edits: bool
    ) -> PermissionDecision:
        """Return the decision on one name of a file; ``tool_decision`` is the decision on the whole tool."""
        tool = builtin_name_of(spec.name) if spec is not None else ""
        asked = tool_decision is not None and tool_decision.decision == "ask"
        if tool_decision and asked and self._is_path_answered(path, tool_decision.asks, tool, edits=edits):
            tool_decision, asked = None, False
        for kind in _RESTRICTING_KINDS:
            if rules := self._path_rules(kind, tool, path, edits=edits):
                ruled = decide_by_rules(rules, format_path(path))
                return strictest_decision([ruled, tool_decision]) if tool_decision is not None else ruled
        if edits and not asked and (part := self._protected_part_of(path)):
            rules = self._path_rules("allow", tool, path, edits=True)
            state = [rule for rule in rules if names_plugin_state(rule.pattern, path)]
            return decide_by_rules(state, format_path(path)) if state else self._decide_protected(path, part)
        if tool_decision is not None:
            return tool_decision
        if rules := self._path_rules("allow", tool, path, edits=edits):
            return decide_by_rules(rules, format_path(path))
        near = any(is_inside(path, folder) for folder in self._working_roots)
        access: AccessKind = ("edit" if near else "change") if edits else ("read" if near else "reach")
        return self._decide_by_mode(access, format_path(path), exact_path_rule(path, edits=edits))

    def _protected_part_of(self, path: PathSegments) -> str:
        return control_part_of(path) if self.mode == "bypassPermissions" else protected_part_of(path)

    def _decide_protected(self, path: PathSegments, part: str) -> PermissionDecision:
        reason = f"{format_path(path)}: {part} decides what runs or what is allowed"
        if self.mode == "plan":
            reason = f"{reason}, and a plan changes nothing"
            return PermissionDecision(decision="deny", rule=part, layer=PROTECTED_LAYER, reason=reason)
        subject = exact_path_rule(path, edits=True)
        return PermissionDecision(
            decision="ask",
            rule=part,
            layer=PROTECTED_LAYER,
            subject=subject,
            reason=f"{reason}, so a person is asked",
            asks=(question_name_of(part, PROTECTED_LAYER, subject),),
        )

    def _decide_path(self, path: str, *, edits: bool) -> PermissionDecision:
        """Return the decision on a file that is not the target of a file tool."""
        try:
            names = self.names_of_path(path, children=False)
        except ValueError as error:
            reason = f"{path!r}: {error}"
            decision = PermissionDecision(decision="ask", layer="mode", rule=self.mode, reason=reason)
        else:
            decision = strictest_decision(
                self._decide_file(None, name, None, edits=True) if edits else self._decide_read(name) for name in names
            )
        return self._deny_questions(decision, path)

    def _may_command_read(self, path: str) -> Verdict:
        """Return whether a command may read a file as the tool Read may; the mode also asks about secrets."""
        try:
            names = self.names_of_path(path, children=False)
        except ValueError:
            return self.may_read(path)
        verdict = self._deny_questions(strictest_decision(map(self._decide_command_read, names)), path).rule_verdict
        if not isinstance(verdict, Allow) or self.mode == "dontAsk" or path.startswith("/dev/"):
            return verdict
        secret = next((name for name in map(format_path, names) if holds_secrets(name)), "")
        return Ask(f"{path} leads to {secret}, which may hold secrets", self.mode, "mode") if secret else verdict

    def _decide_command_read(self, path: PathSegments) -> PermissionDecision:
        decision = self._decide_read(path)
        near = any(is_inside(path, folder) for folder in self._working_roots)
        if decision.decision != "allow" or near or path[:1] == ("dev",):
            return decision
        read = spec_of("Read")
        return self._decide_file(read, path, self._decide_by_tool_rules(read, {}), edits=False)

    def _decide_read(self, path: PathSegments) -> PermissionDecision:
        for kind in _RESTRICTING_KINDS:
            if rules := self._path_rules(kind, "", path, edits=False):
                return decide_by_rules(rules, format_path(path))
        return PermissionDecision(decision="allow", rule=self.mode, layer="mode")

    def names_of_path(self, path: str, *, children: bool) -> list[PathSegments]:
        """Return each name of a file; with ``children``, of anything in a folder."""
        names = [split_path(name) for name in names_of(absolute_path(path, self.cwd, self.home))]
        return [(*name, ANY_CHILD) for name in names] if children else names

    def _path_rules(self, kind: DecisionKind, tool: str, path: PathSegments, *, edits: bool) -> list[Rule]:
        matching = [rule for rule, pattern in self.compiled_path_rules(kind, tool, edits=edits) if pattern.covers(path)]
        if kind != "ask" or not self._rules_by_answer:
            return matching
        return [rule for rule in matching if not self._is_path_answered(path, (rule.text,), tool, edits=edits)]

    def compiled_path_rules(self, kind: DecisionKind, tool: str, *, edits: bool) -> list[tuple[Rule, PathPattern]]:
        """Return the rules of a kind for reading, or editing, with a tool (``""``: any tool)."""
        cached = self._path_rules_cache.get((kind, tool, edits))
        if cached is None:
            rules = [rule for rule in self._by_kind[kind] if rule.applies_to_access(tool, edits=edits)]
            cached = [(rule, rule.path) for rule in rules if rule.path is not None]
            self._path_rules_cache[kind, tool, edits] = cached
        return cached

    def _is_path_answered(self, path: PathSegments, asks: Iterable[str], tool: str, *, edits: bool) -> bool:
        """Return whether grants for all these ask rules allow the path."""
        return bool(self._rules_by_answer) and all(
            any(
                rule.path is not None and rule.applies_to_access(tool, edits=edits) and rule.path.covers(path)
                for rule in self._rules_by_answer.get(text, ())
            )
            for text in asks
        )

    # ------------------------------------------------------------------------------------------------ without a rule

    def _allow_code_tool(self, spec: ToolSpec) -> PermissionDecision | None:
        if spec.layer != "agent" and (spec.layer != "code" or (self.mode == "plan" and spec.effect != "read")):
            return None  # the agent of a route is judged by what it does
        reason = f"{spec.name} was handed over in code"
        return PermissionDecision(decision="allow", rule=spec.name, layer=spec.layer, reason=reason)

    def _decide_by_mode(self, access: AccessKind, what: str, subject: str) -> PermissionDecision:
        decision = MODE_DECISIONS[self.mode][access]
        does = {"allow": "allows it", "ask": "asks", "deny": "does not allow it"}[decision]
        reason = f"{what}: no rule matches; it {_ACCESS_PHRASES[access]}, and the mode {self.mode} {does}"
        return self._mode_decision(decision, reason, subject)

    def _mode_decision(self, decision: DecisionKind, reason: str, subject: str) -> PermissionDecision:
        return PermissionDecision(
            decision=decision, rule=self.mode, layer="mode", reason=reason, subject=subject, asks=(self.mode,)
        )

    def _decide_unknown_target(self, spec: ToolSpec, arguments: Mapping[str, Any], problem: str) -> PermissionDecision:
        """Return the decision on a call whose target is unknown: no pattern allows it."""
        ruled = self._decide_by_tool_rules(spec, arguments)
        if ruled is None and self.mode == "bypassPermissions":
            ruled = self._decide_by_mode("change", spec.name, spec.name)
        if ruled is not None and (
            ruled.decision != "allow" or not any(rule.restricts_target(spec) for rule in self.rules)
        ):
            return ruled
        return self._mode_decision("ask", f"{spec.name}: unknown target: {problem}", f"{spec.name}({problem})")

    def _deny_questions(self, decision: PermissionDecision, what: str) -> PermissionDecision:
        """Turn a question into a denial in the mode ``dontAsk``."""
        if self.mode != "dontAsk" or decision.decision != "ask":
            return decision
        return PermissionDecision(
            decision="deny",
            rule=decision.rule,
            layer=decision.layer,
            subcommands=decision.subcommands,
            reason=f"{decision.reason or what}; the mode dontAsk denies instead of asking",
        )


def _new_file_search() -> "CoveredFiles":
    from vaka.policy.covered_paths import CoveredFiles  # noqa: PLC0415  # reads git repositories; most runs do not

    return CoveredFiles()
