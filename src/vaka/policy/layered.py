"""The policy: rules from every layer of settings, then the mode. Deny wins over ask, ask over allow."""

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import Path
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import PROTECTED, Allow, Ask, Grant, ToolSpec, Verdict
from vaka.policy.decision import Decision, name_of, strictest
from vaka.policy.domains import host_of
from vaka.policy.grants import SESSION, exactly, narrow, session_rules, shown
from vaka.policy.keys import lie_at
from vaka.policy.modes import TABLE, Act, Mode, mode_meant, stricter
from vaka.policy.paths import INSIDE, Kind, PathPattern, Segments, absolute, in_repository, inside, names_of, segments
from vaka.policy.protect import protected
from vaka.policy.rules import KINDS, Layer, Rule, read_rules
from vaka.policy.targets import TOOLS, Known, built_in, folders, given, known

if TYPE_CHECKING:
    from vaka.policy.commands import Commands

_ACTS: Mapping[Act, str] = {
    "note": "keeps notes of the session", "read": "reads in the working directories",
    "reach": "reads outside the working directories", "edit": "changes a file", "change": "may change something",
}  # fmt: skip
_REMEMBERED = 1024
"""Tools whose rules are kept at hand."""
_KEPT = 16
"""Policies with what people have allowed that are kept at hand."""
_TIGHTENING: tuple[Kind, ...] = ("deny", "ask")


class LayeredPolicy:
    """Judges calls by the rules of all layers, given from the weakest to the strongest.

    A call that no rule speaks of is decided by the mode. Judging runs nothing and changes nothing; it only looks where
    links on the disk lead, since a rule holds for a file under each of its names.
    """

    def __init__(self, layers: Iterable[Layer] = (), *, cwd: str = "", home: str = "") -> None:
        """Read the rules. Raises ``ConfigError`` or ``InvalidInput`` for one that makes no sense."""
        self.cwd = os.path.abspath(cwd or os.curdir)  # noqa: PTH100  # without resolving links
        self.home = home or os.path.expanduser("~")  # noqa: PTH111
        self._folder = ""
        layers = list(layers)
        rules, self.notes = read_rules(layers, self.cwd, self.home)
        self.mode: Mode = self._mode(layers)
        self.directories = self._directories(layers)
        self._inside = {segments(root) for folder in self.directories for root in (folder, os.path.realpath(folder))}
        self._exclusive = any(layer.exclusive for layer in layers)
        self._take(rules)

    def _take(self, rules: list[Rule]) -> None:
        """Judge by these rules from now on."""
        self.rules = rules
        self._by_kind = {kind: [rule for rule in rules if rule.kind == kind] for kind in KINDS}
        self._answers: dict[str, list[Rule]] = {}
        for rule in rules:
            for text in rule.answers:
                self._answers.setdefault(text, []).append(rule)
        self._spoken: dict[str, list[list[Rule]]] = {}
        self._bound: dict[tuple[Kind, str, bool], list[tuple[Rule, PathPattern]]] = {}
        self._judges: dict[str, Commands] = {}
        self._with: dict[tuple[Grant, ...], LayeredPolicy] = {}

    def judge(self, call: ToolCall, spec: ToolSpec, path: Path) -> Verdict:
        """Return whether a call may run, must be asked about, or must not run."""
        decision = self.decide(spec, call.arguments)
        verdict = decision.verdict
        if not isinstance(verdict, Ask):
            return verdict
        folder = self._folder if _runs_commands(spec) else ""
        if decision.each:
            return msgspec.structs.replace(verdict, folder=folder)
        grant, scopes = self._offer(spec, call.arguments, decision)
        return msgspec.structs.replace(verdict, grant=grant, scopes=scopes, folder=folder)

    def granted(self, given: Sequence[Grant]) -> "LayeredPolicy":
        """Return these rules with what people have allowed: allow rules, before which those they answer are silent."""
        if not given or self._exclusive:
            return self
        key = tuple(given)
        found = self._with.get(key)
        if found is None:
            if len(self._with) >= _KEPT:
                self._with.clear()
            found = self._with[key] = copy.copy(self)
            found._take([*self.rules, *session_rules(given, self.cwd, self.home)])  # noqa: SLF001  # of its own kind
        return found

    def at(self, folder: str) -> "LayeredPolicy":
        """Return these rules, where commands begin in a folder; where a rule's own path begins stays as it is."""
        found = copy.copy(self)
        found._folder, found._with = folder, {}  # noqa: SLF001  # of its own kind
        return found

    def narrow(self, call: ToolCall, spec: ToolSpec) -> str:
        """Return the rules, one per line, that mean just this call, or as little more as can be said; ``""``: none."""
        rule = "\n".join(self._narrow(spec, call.arguments))
        return rule if rule and self.covers(rule, call, spec) else ""

    def covers(self, rule: str, call: ToolCall, spec: ToolSpec, folder: str = "") -> bool:
        """Return whether rules, one per line, mean this call. Raises ``InvalidInput`` when they make no sense.

        ``folder`` is where ``/x`` begins in them.
        """
        commands = _runs_commands(spec)
        mode = "default" if commands else "dontAsk"  # only among commands there are some that need no rule
        given = Layer(name="flag", allow=Grant(rule=rule).rules, mode=mode, folder=folder)
        alone = LayeredPolicy([given], cwd=self.cwd, home=self.home).at(self._folder)
        decision = alone.decide(msgspec.structs.replace(spec, layer=SESSION), call.arguments)
        by_rule = not commands or any("flag" in part.layer for part in decision.subcommands)
        return decision.decision == "allow" and by_rule

    def _narrow(self, spec: ToolSpec, arguments: Mapping[str, Any], asking: Sequence[bool] = ()) -> list[str]:
        try:
            seen = self._seen_from(arguments) if _runs_commands(spec) else self
        except ValueError:
            return []
        return narrow(spec, arguments, seen.names, asking)

    def _offer(self, spec: ToolSpec, arguments: Mapping[str, Any], decision: Decision) -> tuple[str, tuple[str, ...]]:
        """Return the rules that a yes may keep, and for how long that is of use: each is tried before it is told."""
        asking = [part.decision == "ask" for part in decision.subcommands]
        for parts in (asking, []) if asking else ([],):
            rules = self._narrow(spec, arguments, parts)
            rule = "\n".join(self._fields(decision.asks) or rules if rules == [spec.name] else rules)
            for answers, scopes in ((), ()), (decision.asks, ("once", "session")):
                grant = Grant(rule=rule, answers=answers)
                if rule and self.granted([grant]).decide(spec, arguments).decision == "allow":
                    return rule, scopes
        return "", ()

    def _fields(self, asks: Sequence[str]) -> list[str]:
        """Return the rules that ask, when each of them looks at an argument: they say more than the tool's name."""
        about = {rule.text for rule in self._by_kind["ask"] if rule.sort == "field"}
        return [*asks] if asks and about.issuperset(asks) else []

    def visible(self, spec: ToolSpec) -> bool:
        """Return whether a model is told of the tool: one that is denied whatever it is asked does not exist."""
        return not any(rule.sort == "tool" for rule in self._speaking(spec)[0])

    def decide(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> Decision:
        """Return the decision on a call with its reasons."""
        tool = known(built_in(spec.name))
        try:
            decision = self._looked(spec, tool, arguments)
        except ValueError as error:
            decision = self._unseen(spec, arguments, str(error))
        return self._unasked(decision, spec.name)

    def may_read(self, path: str) -> Verdict:
        """Return what deny and ask rules say of reading a file, whichever tool does it; nobody else is asked."""
        return self._free(path, edits=False).said

    def may_write(self, path: str) -> Verdict:
        """Return whether a file may be changed, whichever tool does it: by rules, protection and mode."""
        return self._free(path, edits=True).said

    # ------------------------------------------------------------------------------------------------ what is looked at

    def _looked(self, spec: ToolSpec, tool: Known, arguments: Mapping[str, Any]) -> Decision:
        if tool.about in ("read", "edit", "search"):
            return self._files(spec, tool, arguments)
        if tool.about == "command":
            return self._command(spec, tool, arguments)
        words = given(tool, arguments)
        host = ""
        if tool.about == "url":
            host = host_of(words[0]) if len(words) == 1 else _nothing(tool)
        said = self._plain(spec, arguments, words, host)
        target = f"domain:{host}" if host else words[0] if words and tool.about == "words" else ""
        return said or self._moded(_act(spec, tool), spec.name, f"{spec.name}({target})" if target else spec.name)

    def _plain(
        self, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str] | None = None, host: str = ""
    ) -> Decision | None:
        """Return what rules say that look at no path and no command, and then handing the tool over in code."""
        for rules in self._speaking(spec):
            met = [rule for rule in rules if _means(rule, spec, arguments, words or [], host)]
            if self._answers:
                met = [rule for rule in met if not self._is_answered(rule, spec, arguments, words or [], host)]
            if met:
                return _ruled(met, spec.name)
        return self._by_code(spec)

    def _is_answered(
        self, asking: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str
    ) -> bool:
        """Return whether a person has answered a rule that asks with one that allows this call."""
        given = self._answers.get(asking.text, ()) if asking.kind == "ask" else ()
        return any(
            rule.sort not in ("path", "command") and rule.speaks_of(spec.name)
            and _means(rule, spec, arguments, words, host)
            for rule in given
        )  # fmt: skip

    def _speaking(self, spec: ToolSpec) -> list[list[Rule]]:
        """Return the rules that speak of a tool and need neither path nor command, by kind, the strictest first."""
        found = self._spoken.get(spec.name)
        if found is None:
            plain = [rule for rule in self.rules if rule.sort not in ("path", "command") and self._is_meant(rule, spec)]
            found = [[rule for rule in plain if rule.kind == kind] for kind in KINDS]
            if len(self._spoken) < _REMEMBERED:
                self._spoken[spec.name] = found
        return found

    def _command(self, spec: ToolSpec, tool: Known, arguments: Mapping[str, Any]) -> Decision:
        commands = given(tool, arguments)
        command = commands[0] if commands else _nothing(tool)
        said = self._plain(spec, arguments)
        if said is not None and said.decision == "deny":
            return said
        allowed = self._by_code(spec) or self._moded("change", spec.name, spec.name)
        judge = self._commands(built_in(spec.name), exactly=spec.name)
        seen = self._seen_from(arguments)
        found = judge.decide(
            command, allowed, profile=self.mode != "dontAsk", may_write=seen.may_write,
            may_read=seen._read_by_command, inside=seen._is_inside, start=seen.cwd,  # noqa: SLF001  # of its own kind
        )  # fmt: skip
        if said is None or said.decision != "ask" or judge.answered(command, said.asks):
            return found
        return msgspec.structs.replace(strictest([said, found]), subcommands=found.subcommands)

    def _seen_from(self, arguments: Mapping[str, Any]) -> "LayeredPolicy":
        """Return these rules as they look at paths from where a command begins. Raises ``ValueError`` for no place."""
        wanted: Any = arguments.get("workdir") or ""
        if not isinstance(wanted, str) or "\0" in wanted:
            raise ValueError("workdir is no folder")
        if not (self._folder or wanted):
            return self
        found = copy.copy(self)
        found.cwd = os.path.realpath(os.path.join(self._folder or self.cwd, wanted))  # noqa: PTH118
        return found

    def _commands(self, tool: str, *, exactly: str) -> "Commands":
        if exactly not in self._judges:
            from vaka.policy.commands import Commands  # noqa: PLC0415  # a grammar that most programs never need

            tight = [rule for rule in self.rules if rule.kind != "allow" and rule.speaks_of(tool)]
            allow = [rule for rule in self._by_kind["allow"] if rule.speaks_of(exactly)]
            self._judges[exactly] = Commands([*(rule for rule in tight if rule.sort == "command"), *allow])
        return self._judges[exactly]

    def _is_inside(self, path: str) -> bool:
        try:
            names = self.names(path, whole=False)
        except ValueError:
            return False
        if not all(any(inside(name, folder) for folder in self._inside) for name in names):
            return False
        return not any(in_repository(name, self._inside) for name in names)

    def _files(self, spec: ToolSpec, tool: Known, arguments: Mapping[str, Any]) -> Decision:
        edits, whole = tool.about == "edit", tool.about == "search"
        paths = list(folders(built_in(spec.name), arguments)) if whole else given(tool, arguments)
        if not paths:
            _nothing(tool)
        said = self._plain(spec, arguments)
        if said is not None and said.decision == "deny":
            return said
        found = [self._file(spec, name, said, edits=edits) for path in paths for name in self.names(path, whole=whole)]
        return strictest(found)

    def _file(self, spec: ToolSpec | None, path: Segments, said: Decision | None, *, edits: bool) -> Decision:
        """Return the decision on one name of a file; ``said`` is what rules say of the tool whatever it works on."""
        tool = built_in(spec.name) if spec is not None else ""
        if said is not None and said.decision == "ask" and self._answered_at(path, said.asks, tool, edits=edits):
            said = None
        for kind in _TIGHTENING:
            if rules := self._path_rules_for(kind, tool, path, edits=edits):
                ruled = _ruled(rules, shown(path))
                return strictest([ruled, said]) if said is not None else ruled
        if said is not None and said.decision == "ask":
            return said
        if edits and (what := protected(path)):
            if self.mode == "plan":
                reason = f"{shown(path)}: {what} decides what runs or what is allowed, and a plan changes nothing"
                return Decision(decision="deny", rule=what, layer=PROTECTED, reason=reason)
            reason = f"{shown(path)}: {what} decides what runs or what is allowed, so a person is asked in every mode"
            subject = exactly(path, edits=edits)
            asks = (name_of(what, PROTECTED, subject),)
            return Decision(decision="ask", rule=what, layer=PROTECTED, reason=reason, subject=subject, asks=asks)
        if said is not None:
            return said
        if rules := self._path_rules_for("allow", tool, path, edits=edits):
            return _ruled(rules, shown(path))
        near = any(inside(path, folder) for folder in self._inside)
        act: Act = ("edit" if near else "change") if edits else ("read" if near else "reach")
        return self._moded(act, shown(path), exactly(path, edits=edits))

    def _free(self, path: str, *, edits: bool) -> Decision:
        """Return the decision on a file that no tool of ours opens."""
        try:
            names = self.names(path, whole=False)
        except ValueError as error:
            reason = f"{path!r}: {error}"
            return self._unasked(Decision(decision="ask", layer="mode", rule=self.mode, reason=reason), path)
        if not edits:
            return self._unasked(strictest(self._read_freely(name) for name in names), path)
        return self._unasked(strictest(self._file(None, name, None, edits=True) for name in names), path)

    def _read_by_command(self, path: str) -> Verdict:
        """Return what is said of a file that a command reads: where keys lie, whatever leads there, the mode asks."""
        try:
            names = self.names(path, whole=False)
        except ValueError:
            return self.may_read(path)
        said = self._unasked(strictest(self._read_freely(name) for name in names), path).said
        if not isinstance(said, Allow) or self.mode == "dontAsk" or path.startswith("/dev/"):
            return said
        key = next((name for name in map(shown, names) if lie_at(name)), "")
        return Ask(f"{path} leads to {key}, a place where keys lie", self.mode, "mode") if key else said

    def _read_freely(self, path: Segments) -> Decision:
        for kind in _TIGHTENING:
            if rules := self._path_rules_for(kind, "", path, edits=False):
                return _ruled(rules, shown(path))
        return Decision(decision="allow", rule=self.mode, layer="mode")

    def names(self, path: str, *, whole: bool) -> list[Segments]:
        """Return each name of a file; a search looks at what is in a folder, too."""
        names = [segments(name) for name in names_of(absolute(path, self.cwd, self.home))]
        return [(*name, INSIDE) for name in names] if whole else names

    def _path_rules_for(self, kind: Kind, tool: str, path: Segments, *, edits: bool) -> list[Rule]:
        known = self._bound.get((kind, tool, edits))
        if known is None:
            about = [rule for rule in self._by_kind[kind] if rule.means_access(tool, edits=edits)]
            known = self._bound[kind, tool, edits] = [(rule, rule.path) for rule in about if rule.path is not None]
        found = [rule for rule, pattern in known if pattern.covers(path)]
        if kind != "ask" or not self._answers:
            return found
        return [rule for rule in found if not self._answered_at(path, (rule.text,), tool, edits=edits)]

    def _answered_at(self, path: Segments, asks: Iterable[str], tool: str, *, edits: bool) -> bool:
        """Return whether a person has answered all these rules with some that allow this path."""
        return bool(self._answers) and all(
            any(
                rule.path is not None and rule.means_access(tool, edits=edits) and rule.path.covers(path)
                for rule in self._answers.get(text, ())
            )
            for text in asks
        )

    # ------------------------------------------------------------------------------------------------ where no rule is

    def _by_code(self, spec: ToolSpec) -> Decision | None:
        if spec.layer != "code" or (self.mode == "plan" and spec.effect != "read"):
            return None
        return Decision(decision="allow", rule=spec.name, layer="code", reason=f"{spec.name} was handed over in code")

    def _moded(self, act: Act, what: str, subject: str) -> Decision:
        answer = TABLE[self.mode][act]
        does = {"allow": "allows it", "ask": "asks", "deny": "does not allow it"}[answer]
        reason = f"{what}: no rule speaks of it; it {_ACTS[act]}, and the mode {self.mode} {does}"
        return Decision(
            decision=answer, rule=self.mode, layer="mode", reason=reason, subject=subject, asks=(self.mode,)
        )

    def _unseen(self, spec: ToolSpec, arguments: Mapping[str, Any], why: str) -> Decision:
        """Return the decision on a call of which nobody can tell what it works on: no pattern allows it."""
        said = self._plain(spec, arguments)
        if said is None and self.mode == "bypassPermissions":
            said = self._moded("change", spec.name, spec.name)
        if said is not None and (said.decision != "allow" or not self._might_be_meant(spec)):
            return said
        reason = f"{spec.name}: what it works on cannot be told: {why}"
        subject = f"{spec.name}({why})"
        return Decision(decision="ask", rule=self.mode, layer="mode", reason=reason, subject=subject, asks=(self.mode,))

    def _might_be_meant(self, spec: ToolSpec) -> bool:
        return any(
            rule.kind != "allow" and rule.sort in ("path", "domain", "command")
            and (self._is_meant(rule, spec) or rule.path is not None)
            for rule in self.rules
        )  # fmt: skip

    def _unasked(self, decision: Decision, what: str) -> Decision:
        """In ``dontAsk`` a question is a no."""
        if self.mode != "dontAsk" or decision.decision != "ask":
            return decision
        return Decision(
            decision="deny", rule=decision.rule, layer=decision.layer, subcommands=decision.subcommands,
            reason=f"{decision.reason or what}; in the mode dontAsk nobody is asked",
        )  # fmt: skip

    def _is_meant(self, rule: Rule, spec: ToolSpec) -> bool:
        """Another name of a built-in tool is no way around a rule, nor a way to be allowed by one."""
        return rule.speaks_of(spec.name) or (rule.kind != "allow" and rule.speaks_of(built_in(spec.name)))

    # ------------------------------------------------------------------------------------------------ what layers say

    def _mode(self, layers: list[Layer]) -> Mode:
        mode: Mode = "default"
        for layer in layers:
            if not layer.mode:
                continue
            where = f"{layer.origin or layer.name}: defaultMode {layer.mode!r}"
            wanted = _named_mode(layer, where)
            if wanted == "bypassPermissions" and layer.project:
                self.notes.append(f"{where} does not count: only the user or a manager may set it so")
            elif not layer.trusted and wanted != mode and not stricter(wanted, mode):
                self.notes.append(f"{where} does not count: this folder is not trusted; --trust counts it")
            else:
                mode = wanted
        if mode == "bypassPermissions" and any(layer.no_bypass for layer in layers):
            self.notes.append("the mode bypassPermissions is switched off by the settings; the mode is default")
            return "default"
        return mode

    def _directories(self, layers: list[Layer]) -> list[str]:
        found = [self.cwd]
        for layer in layers:
            for folder in layer.directories:
                if layer.trusted:
                    found.append(os.path.normpath(absolute(folder, self.cwd, self.home)))
                else:
                    where = f"{layer.origin or layer.name}: additionalDirectories {folder!r}"
                    self.notes.append(f"{where} does not count: this folder is not trusted; --trust counts it")
        return list(dict.fromkeys(found))


def _named_mode(layer: Layer, where: str) -> Mode:
    try:
        return mode_meant(layer.mode)
    except InvalidInput as error:
        if layer.name == "flag":
            raise
        raise ConfigError(f"{where}: {error}") from error


def _ruled(rules: list[Rule], what: str) -> Decision:
    """Return what rules of one kind say; who agrees to what one of them asks has not agreed to the others."""
    rule = rules[0]
    does = {"allow": "allows", "ask": "asks about", "deny": "denies"}[rule.kind]
    reason = f"the rule {rule.text} {does} {what}"
    texts = tuple(sorted({rule.text for rule in rules}))
    return Decision(
        decision=rule.kind, rule=rule.text, layer=rule.layer, reason=reason, subject=" & ".join(texts), asks=texts
    )


def _means(rule: Rule, spec: ToolSpec, arguments: Mapping[str, Any], words: list[str], host: str) -> bool:
    if rule.sort == "tool":
        return True
    if rule.sort == "field":
        return rule.means_value(arguments, spec.parameters if rule.kind != "allow" else {})
    if rule.sort == "words":
        return rule.means_words(words)
    return rule.domain is not None and bool(host) and rule.domain.covers(host)


def _runs_commands(spec: ToolSpec) -> bool:
    return known(built_in(spec.name)).about == "command"


def _act(spec: ToolSpec, tool: Known) -> Act:
    """Return what a call of the tool does; what a stranger's server says of its own tools does not count."""
    if spec.layer == "builtin" and built_in(spec.name) in TOOLS:
        return tool.act
    return "read" if spec.effect == "read" and not (spec.layer == "mcp" or spec.name.startswith("mcp__")) else "change"


def _nothing(tool: Known) -> str:
    raise ValueError(f"expected {' or '.join(tool.main)}")
