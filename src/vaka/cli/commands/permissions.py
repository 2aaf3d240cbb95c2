"""``vaka permissions``: check calls against the permission rules and list the rules. Nothing is run."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, print_notes
from vaka.cli.kit.errors import USAGE, Quit, UsageError, describe_error
from vaka.cli.kit.render import print_json, print_table
from vaka.config.documents import is_inline_json
from vaka.config.settings import load_settings
from vaka.core.types.errors import ConfigError, InvalidInput, VakaError
from vaka.core.types.message import replace_surrogates
from vaka.core.types.tool import Layer
from vaka.policy.decision import PermissionDecision, Subcommand
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of
from vaka.project.claude_settings import (
    load_permissions,
    parse_document,
    parse_permission_layer,
)

_MAX_POLICIES = 256
"""The most policies cached while lines are read."""

_RULE_FLAGS = ("allow", "confirm", "deny")

_rule_options = options.group_options(
    click.option("--settings", metavar="FILE|JSON", help="Further settings, stronger than the settings of the folder."),
    options.flag_of("permission_mode", name="--mode"),
    click.option("--cwd", metavar="DIR", help="Check as from this folder; it need not exist."),
    *map(options.flag_of, _RULE_FLAGS),
    click.option("--trust", is_flag=True, help="Let the settings in this folder also allow things."),
    click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error."),
)


@click.group()
def permissions() -> None:
    """Check calls against the permission rules, or list the rules. Nothing is run."""


@permissions.command(
    epilog=options.format_examples(
        'vaka permissions check --tool Bash --input \'{"command": "git push"}\'',
        'vaka permissions check --tool Read --input \'{"file_path": ".env"}\' --deny "Read(.env)"',
        "vaka permissions check --batch < calls.jsonl",
    )
)
@click.option("--tool", metavar="NAME", help="The tool that would be called.")
@click.option("--input", "arguments", metavar="JSON", help="Its arguments.")
@click.option("--batch", is_flag=True, help="Read one call per line from stdin and print one decision per line.")
@click.option("--non-interactive", is_flag=True, help="Deny what would otherwise ask.")
@_rule_options
def check(tool: str | None, arguments: str | None, batch: bool, **flags: Any) -> None:
    """Print the decision on a call as JSON: allow, ask or deny, and the rule and layer that made it.

    With --batch each line of stdin is {"tool", "input", "settings"?, "mode"?, "cwd"?, "non_interactive"?}; a line that
    is not valid is answered with {"error"}, and the exit code is 2. Blank lines are skipped.
    """
    checker = _PermissionChecker(flags)
    if batch:
        if tool is not None or arguments is not None:
            raise UsageError("--batch reads calls from stdin; leave out --tool and --input")
        raise Quit(USAGE if _check_lines(checker) else 0)
    if tool is None:
        raise UsageError("give --tool NAME and --input JSON, or --batch")
    request = _CheckRequest(tool=tool, input=_parse_arguments(arguments or "{}"))
    policy = checker.policy_for(request)
    print_notes(policy.notes, checker.notes)
    print_json(_decision_fields(checker.decide(policy, request)))


@permissions.command(
    "list",
    epilog=options.format_examples("vaka permissions list", "vaka permissions list --json --settings strict.json"),
)
@options.json_option
@_rule_options
def list_(as_json: bool, **flags: Any) -> None:
    """List the rules in force with the origin of each, the mode, and the working directories."""
    checker = _PermissionChecker(flags)
    print_rules(checker.policy_for(_CheckRequest(tool="")), checker.notes, as_json=as_json)


def print_rules(policy: LayeredPolicy, notes: Iterable[str], *, as_json: bool) -> None:
    """Print the rules of a policy with the origin of each, its mode, and the working directories."""
    if as_json:
        names = ("kind", "rule", "layer", "origin")
        rules = [dict(zip(names, (r.kind, r.text, r.layer, r.origin), strict=True)) for r in policy.rules]
        notes = [*notes, *policy.notes]
        print_json({"mode": policy.mode, "directories": policy.directories, "rules": rules, "notes": notes})
        return
    print_notes(policy.notes, notes)
    print_table(("KIND", "RULE", "LAYER", "FROM"), [(r.kind, r.text, r.layer, r.origin) for r in policy.rules])
    click.echo(f"mode {policy.mode}; working directories: {', '.join(policy.directories)}", err=True)


class _CheckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call to check; one line of ``--batch``."""

    tool: str
    input: dict[str, Any] = {}
    settings: dict[str, Any] | None = None
    mode: str = ""
    cwd: str = ""
    non_interactive: bool | None = None


class _PermissionChecker:
    """Checks calls against the settings of a folder and the flags."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self.flags = flags
        self.notes: list[str] = []
        self._cached_policy = lru_cache(maxsize=_MAX_POLICIES)(self._build_policy)
        self._layers_by_cwd: dict[str, list[Layer]] = {}
        self._trusted_by_cwd: dict[str, bool] = {}

    def decide(self, policy: LayeredPolicy, request: _CheckRequest) -> PermissionDecision:
        """Return the decision on a call; where no person can be asked, ``ask`` becomes ``deny``."""
        decision = policy.decide(spec_of(request.tool), request.input)
        unattended = self.flags.get("non_interactive") if request.non_interactive is None else request.non_interactive
        if decision.decision != "ask" or not unattended:
            return decision
        return msgspec.structs.replace(decision, decision="deny", reason=f"{decision.reason}; no person can be asked")

    def policy_for(self, request: _CheckRequest) -> LayeredPolicy:
        """Return the policy for one call, cached by folder, mode and settings."""
        folder = request.cwd or self.flags["cwd"]
        try:
            return self._cached_policy(
                folder or os.curdir, request.mode or self.flags["permission_mode"], json.dumps(request.settings)
            )
        except (OSError, ValueError) as error:  # such as a folder name with a NUL byte
            raise InvalidInput(f"cwd {folder!r}: {error}") from error

    def _build_policy(self, folder: str, mode: str, settings: str) -> LayeredPolicy:
        cwd = os.path.abspath(os.path.expanduser(folder))  # noqa: PTH100, PTH111
        layers = [*self._layers_at(cwd)]
        if (document := json.loads(settings)) is not None:
            layers.append(parse_permission_layer(document, "settings"))
        if mode:
            layers.append(Layer(name="flag", origin="--mode", mode=mode))
        layers.sort(key=lambda layer: layer.name == "managed")  # the administrator's layers are the strongest
        return LayeredPolicy(layers, cwd=cwd, home=str(Path.home()), trusted=self._trusted_by_cwd[cwd])

    def _layers_at(self, cwd: str) -> list[Layer]:
        if cwd not in self._layers_by_cwd:
            context = msgspec.structs.replace(config_context(), cwd=Path(cwd))
            flags = {name: self.flags[name] for name in _RULE_FLAGS}
            settings = load_settings(context, flags, trust=self.flags["trust"])
            file = self.flags["settings"]
            if file and not is_inline_json(file):
                file = Path(file).expanduser().absolute()
            permissions = load_permissions(context, settings=file, flags=settings, trust=settings.trusted)
            self.notes += [*settings.notes, *permissions.notes]
            self._layers_by_cwd[cwd] = list(permissions.layers)
            self._trusted_by_cwd[cwd] = settings.trusted
        return self._layers_by_cwd[cwd]


def _check_lines(checker: _PermissionChecker) -> bool:
    """Answer each line of stdin; return whether one of them was not valid."""
    failed = False
    for number, line in enumerate(cast("Iterable[bytes]", sys.stdin.buffer), 1):
        if not line.strip():
            continue
        try:
            answer = _check_line(checker, line.strip(), f"line {number}")
        except VakaError as error:
            failed, answer = True, {"error": describe_error(error).message}
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
    return failed


def _check_line(checker: _PermissionChecker, line: bytes, origin: str) -> dict[str, Any]:
    try:
        request = msgspec.convert(parse_document(line.decode("utf-8-sig"), origin), _CheckRequest)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{origin} is not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{origin} is not a call: {error}") from error
    return _decision_fields(checker.decide(checker.policy_for(request), request))


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        return parse_document(text, "--input")
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _decision_fields(decision: PermissionDecision) -> dict[str, Any]:
    parts = [{"command": replace_surrogates(part.command), **_verdict_fields(part)} for part in decision.subcommands]
    return {**_verdict_fields(decision), "subcommands": parts}


def _verdict_fields(verdict: "PermissionDecision | Subcommand") -> dict[str, Any]:
    """Return a verdict as UTF-8 text: paths in it may have surrogates."""
    rule, layer = replace_surrogates(verdict.rule) or None, verdict.layer or None
    return {"decision": verdict.decision, "rule": rule, "layer": layer, "reason": replace_surrogates(verdict.reason)}
