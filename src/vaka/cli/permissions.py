"""``vaka permissions``: what the rules say of a call, and which rules there are. Nothing is run."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli import options
from vaka.cli.errors import USAGE, Quit, UsageError, told
from vaka.cli.report import print_json
from vaka.cli.start import here
from vaka.cli.table import print_table
from vaka.config.layers import Place, load
from vaka.config.permissions import PermissionLayer, load_permissions, parse_document, permission_layer
from vaka.core.types.content import clean
from vaka.core.types.errors import ConfigError, InvalidInput, VakaError
from vaka.policy.decision import Decision, Subcommand
from vaka.policy.layered import LayeredPolicy
from vaka.policy.targets import spec_of
from vaka.runtime.permissions import policy_of

_POLICIES = 256
"""Policies kept at hand while lines are read."""

_RULES = (
    click.option("--settings", metavar="FILE", help="One more settings file, stronger than those of the folder."),
    click.option("--mode", type=options.choice("permission_mode"), help="What happens to calls no rule speaks of."),
    click.option("--cwd", metavar="DIR", help="Judge as from this folder; it need not exist."),
    click.option("--allow", multiple=True, metavar="RULE", help="A further allow rule; may be repeated."),
    click.option("--confirm", multiple=True, metavar="RULE", help="A further ask rule; may be repeated."),
    click.option("--deny", multiple=True, metavar="RULE", help="A further deny rule; may be repeated."),
    click.option("--trust", is_flag=True, help="Let the settings in this folder also allow things."),
    click.option("-v", "--verbose", is_flag=True, help="Show where an error came from."),
)  # fmt: skip


def _rule_options(command: options.F) -> options.F:
    for option in reversed(_RULES):
        command = option(command)
    return command


@click.group()
def permissions() -> None:
    """What the permission rules say: of one call, of many, or which rules there are. Nothing is run."""


@permissions.command(
    epilog=options.examples(
        'vaka permissions check --tool Bash --input \'{"command": "git push"}\'',
        'vaka permissions check --tool Read --input \'{"file_path": ".env"}\' --deny "Read(.env)"',
        "vaka permissions check --batch < calls.jsonl",
    )
)
@click.option("--tool", metavar="NAME", help="The tool that would be called.")
@click.option("--input", "arguments", metavar="JSON", help="Its arguments.")
@click.option("--batch", is_flag=True, help="Read one call per line from stdin and print one decision per line.")
@click.option("--non-interactive", is_flag=True, help="There is nobody to ask: what would be asked is denied.")
@_rule_options
def check(tool: str | None, arguments: str | None, batch: bool, **given: Any) -> None:
    """Print the decision on a call as JSON: allow, ask or deny, and the rule and layer that made it.

    With --batch each line of stdin is {"tool", "input", "settings"?, "mode"?, "cwd"?, "non_interactive"?}; a line that
    makes no sense is answered with {"error"}, and the exit code is 2 in the end. Blank lines are left out.
    """
    desk = _Desk(given)
    if batch:
        if tool is not None or arguments is not None:
            raise UsageError("--batch reads calls from stdin; leave out --tool and --input")
        raise Quit(USAGE if _answer_lines(desk) else 0)
    if tool is None:
        raise UsageError("give --tool NAME and --input JSON, or --batch")
    asked = _Asked(tool=tool, input=_arguments(arguments or "{}"))
    policy = desk.policy(asked)
    _note(policy.notes, desk.notes)
    print_json(_shown(desk.decide(policy, asked)))


@permissions.command(
    "list", epilog=options.examples("vaka permissions list", "vaka permissions list --json --settings strict.json")
)
@options.json_option
@_rule_options
def list_(as_json: bool, **given: Any) -> None:
    """List the rules in force and where each comes from, the mode, and the working directories."""
    desk = _Desk(given)
    policy = desk.policy(_Asked(tool=""))
    print_rules(policy, desk.notes, as_json=as_json)


def print_rules(policy: LayeredPolicy, notes: Iterable[str], *, as_json: bool) -> None:
    """Print the rules of a policy with where each comes from, its mode, and the working directories."""
    if as_json:
        rows = [
            {"kind": rule.kind, "rule": rule.text, "layer": rule.layer, "origin": rule.origin} for rule in policy.rules
        ]
        print_json(
            {
                "mode": policy.mode, "directories": policy.directories, "rules": rows,
                "notes": [*notes, *policy.notes],
            }
        )  # fmt: skip
        return
    _note(policy.notes, notes)
    print_table(
        ("KIND", "RULE", "LAYER", "FROM"),
        [(rule.kind, rule.text, rule.layer, rule.origin) for rule in policy.rules],
    )
    click.echo(f"mode {policy.mode}; working directories: {', '.join(policy.directories)}", err=True)


class _Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call somebody wants to know about."""

    tool: str
    input: dict[str, Any] = {}
    settings: dict[str, Any] | None = None
    mode: str = ""
    cwd: str = ""
    non_interactive: bool | None = None


class _Desk:
    """Answers questions about calls, by the settings of the folder and what was typed."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.notes: list[str] = []
        self._made: dict[str, LayeredPolicy] = {}
        self._read: dict[str, list[PermissionLayer]] = {}

    def decide(self, policy: LayeredPolicy, asked: _Asked) -> Decision:
        """Return the decision on a call; with nobody to ask, a question is a no."""
        decision = policy.decide(spec_of(asked.tool), asked.input)
        alone = self.given.get("non_interactive") if asked.non_interactive is None else asked.non_interactive
        if decision.decision != "ask" or not alone:
            return decision
        return msgspec.structs.replace(decision, decision="deny", reason=f"{decision.reason}; there is nobody to ask")

    def policy(self, asked: _Asked) -> LayeredPolicy:
        """Return the policy for one call; equal settings are read once."""
        key = json.dumps([asked.cwd, asked.mode, asked.settings])
        if key not in self._made:
            if len(self._made) >= _POLICIES:
                self._made.clear()
            try:
                self._made[key] = self._policy(asked)
            except (OSError, ValueError) as error:  # a folder that cannot be one
                raise InvalidInput(f"cwd {asked.cwd or self.given['cwd']!r}: {error}") from error
        return self._made[key]

    def _policy(self, asked: _Asked) -> LayeredPolicy:
        cwd = os.path.abspath(os.path.expanduser(asked.cwd or self.given["cwd"] or os.curdir))  # noqa: PTH100, PTH111
        layers = [*self._layers(cwd)]
        if asked.settings is not None:
            layers.append(permission_layer(asked.settings, "settings"))
        if mode := asked.mode or self.given["mode"]:
            layers.append(PermissionLayer(name="flag", origin="--mode", mode=mode))
        layers.sort(key=lambda layer: layer.name == "managed")  # the manager has the last word
        return policy_of(layers, cwd=cwd, home=str(Path.home()))

    def _layers(self, cwd: str) -> list[PermissionLayer]:
        if cwd not in self._read:
            place = Place(cwd=Path(cwd), home=here().home, environ=here().environ)
            flags = {name: self.given[name] for name in ("allow", "confirm", "deny")}
            own = load(place, flags, trust=self.given["trust"])
            file = self.given["settings"]
            found = load_permissions(
                place, settings=Path(file).expanduser().absolute() if file else None, flags=own,
                trust=own.trust,
            )  # fmt: skip
            self.notes += [*own.notes, *found.notes]
            self._read[cwd] = list(found.layers)
        return self._read[cwd]


def _answer_lines(desk: _Desk) -> bool:
    """Answer each line of stdin; return whether one of them made no sense."""
    wrong = False
    for number, line in enumerate(cast("Iterable[bytes]", sys.stdin.buffer), 1):
        if not line.strip():
            continue
        try:
            answer = _answered(desk, line.strip(), f"line {number}")
        except VakaError as error:
            wrong, answer = True, {"error": clean(told(error).message)}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    return wrong


def _answered(desk: _Desk, line: bytes, origin: str) -> dict[str, Any]:
    try:
        asked = msgspec.convert(parse_document(line.decode("utf-8-sig"), origin), _Asked)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{origin} is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{origin} is not a call: {error}") from error
    return _shown(desk.decide(desk.policy(asked), asked))


def _arguments(text: str) -> dict[str, Any]:
    try:
        return parse_document(text, "--input")
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _shown(decision: Decision) -> dict[str, Any]:
    facts = _facts(decision)
    parts = [{"command": clean(part.command), **_facts(part)} for part in decision.subcommands]
    return {**facts, "subcommands": parts}


def _facts(said: "Decision | Subcommand") -> dict[str, Any]:
    """Return who says what, as text that can be written: a path may hold what is none."""
    rule, layer = clean(said.rule) or None, said.layer or None
    return {"decision": said.decision, "rule": rule, "layer": layer, "reason": clean(said.reason)}


def _note(*notes: Iterable[str]) -> None:
    for note in dict.fromkeys(note for some in notes for note in some):
        click.echo(f"note: {note}", err=True)
