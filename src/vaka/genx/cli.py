"""``vaka match``: check rule files, and test rules with models or offline."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import open_models, settings_from_flags
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import StatusLine, as_printable, print_json, print_table, shorten
from vaka.config.documents import JsonPath, read_errors
from vaka.core.ports.model import Embedder, Model
from vaka.core.types.errors import ConfigError, ModelError, VakaError
from vaka.genx.definitions.codecs import FORMATS
from vaka.genx.definitions.folder import FOLDERS, include_scope, iter_definitions
from vaka.genx.definitions.includes import ComposedDocument, read_composed
from vaka.genx.match.lines import MatchResult, format_line
from vaka.genx.match.matcher import CompiledRules, collect, compile_rules
from vaka.genx.match.offline import DEFAULT_THRESHOLD, OfflineMatcher
from vaka.genx.match.report import (
    CaseReport,
    MatchFunction,
    MatchReport,
    ModelReport,
    collect_tests,
    make_report,
    run_tests,
)
from vaka.genx.match.rules import MatchRule, check_rule, parse_rule

OFFLINE = "offline"
"""The name of the offline matcher in reports."""
FAILED_TESTS = 1
MAX_FAILURES_SHOWN = 20
_REPORT_FORMATS = ("text", "json")


class NamedModels(Protocol):
    """The models of the settings, by name."""

    def find(self, name: str, /) -> Model: ...
    def embedder(self, name: str, /) -> Embedder: ...
    async def close(self) -> None: ...


class RuleFinding(msgspec.Struct, frozen=True):
    """An error or a warning in a rule file; ``place`` is FILE:LINE."""

    place: str
    message: str
    is_error: bool = True


class RuleFiles(msgspec.Struct, frozen=True):
    """The rules of files that have no errors, and every finding."""

    rules: list[MatchRule]
    findings: list[RuleFinding]

    @property
    def failed(self) -> bool:
        """Whether a finding is an error."""
        return any(finding.is_error for finding in self.findings)


@click.group()
def match() -> None:
    """Check rule files, and test rules with models or with the matcher that needs none."""


_files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE|DIR…")


@match.command(epilog=options.format_examples("vaka match check rules/play.yaml", "vaka match check rules --json"))
@_files_argument
@options.json_option
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Check rule files (YAML, JSON). Prints every problem with FILE:LINE; exit code 3 if one is an error."""
    found = read_rule_files(files)
    if as_json:
        rows = [
            {"place": one.place, "kind": "error" if one.is_error else "warning", "message": one.message}
            for one in found.findings
        ]
        print_json({"rules": len(found.rules), "findings": rows, "ok": not found.failed})
    else:
        _print_findings(found.findings)
        if not found.failed:
            tests = sum(len(rule.tests) for rule in found.rules)
            click.echo(f"ok: {_count(len(found.rules), 'rule')}, {_count(tests, 'test')}", err=True)
    if found.failed:
        raise Quit(ConfigError.exit_code)


@match.command(
    epilog=options.format_examples(
        "vaka match test rules --model openai/gpt-5-nano",
        "vaka match test rules --model small --model large --report json --output report.json",
        "vaka match test rules --offline",
        "vaka match test rules --prompt",
    )
)
@_files_argument
@click.option("--model", "-m", "model_names", multiple=True, metavar="NAME", help="A model to test; may be repeated.")
@click.option("--offline", is_flag=True, help="Test the matcher that needs no model.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=DEFAULT_THRESHOLD,
    show_default=True,
    help="The least confidence of an offline match.",
)
@click.option("--embedder", metavar="NAME", help="Vectors for the offline matcher: hashing, minilm or provider/model.")
@click.option("--template", type=click.Path(dir_okay=False), metavar="FILE", help="A Jinja template of the prompt.")
@click.option("--prompt", "show_prompt", is_flag=True, help="Print the prompt that models get, and test nothing.")
@click.option("--report", "report_format", type=click.Choice(_REPORT_FORMATS), default="text", help="The form of it.")
@click.option(
    "--output", "-o", "report_file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report to a file."
)
@click.option("--quiet", "-q", is_flag=True, help="Do not print progress.")
@options.store_options
def test(files: tuple[str, ...], **flags: Any) -> None:
    """Run the tests of rule files and report what passed, for each rule and with latencies.

    Exit codes: 0 every test passed, 1 some failed, 3 a file or a name is wrong, 6 every answer of a model failed.
    """
    found = read_rule_files(files)
    _print_findings(found.findings)
    if found.failed:
        raise Quit(ConfigError.exit_code)
    if flags["show_prompt"]:
        click.echo(_compile(found.rules, flags["template"]).prompt)
        return
    if not collect_tests(found.rules):
        raise ConfigError('the rule files have no tests; add them, such as tests: [{input: "play Yesterday"}]')
    settings = settings_from_flags(flags)
    if not (flags["model_names"] or flags["offline"] or settings["model"]):
        raise UsageError("name a model with --model, or test without one with --offline")
    report = run_loop(_run(found.rules, partial(open_models, settings), settings["model"], flags))
    _write_report(report, flags["report_format"], flags["report_file"])
    if any(model.passed < model.total_cases for model in report.models):
        broken = any(model.errors == model.total_cases for model in report.models)
        raise Quit(ModelError.exit_code if broken else FAILED_TESTS)


# --------------------------------------------------------------------------------------------------------------- files


def read_rule_files(names: Sequence[str]) -> RuleFiles:
    """Return the rules of files and folders. A document is a rule, a list of rules, or a mapping with ``rules``."""
    rules: list[MatchRule] = []
    findings: list[RuleFinding] = []
    places: dict[str, str] = {}
    for path, document in _read_documents([options.expand_path(name) for name in names]):
        if isinstance(document, ConfigError):
            findings.append(_finding_of(document, path))
            continue
        for prefix, rule_document in iter_definitions("rule", document.value):
            value = _add_name(rule_document, path) if not prefix else rule_document
            found = list(_check(document, prefix, value))
            findings += found
            if any(finding.is_error for finding in found):
                continue
            rule = parse_rule(value)
            rules.append(rule)
            place = document.place_of((*prefix, "name"))
            if (first := places.setdefault(rule.name, place)) != place:
                text = f"rule {rule.name!r} is also in {first}, which parses answers; the prompt has both"
                findings.append(RuleFinding(place, text, is_error=False))
    if not rules and not findings:
        raise ConfigError(f"no rules in {', '.join(names)}: expected files that end in {', '.join(FORMATS)}")
    return RuleFiles(rules, findings)


def _read_documents(named: Sequence[Path]) -> Iterator[tuple[Path, ComposedDocument | ConfigError]]:
    """Yield the documents of files, and of the files in folders without included files."""
    found: dict[Path, ComposedDocument | ConfigError] = {}
    included: set[Path] = set()
    for path in (path for place in named for path in _paths_of(place)):
        folder = path.absolute().parent
        try:
            document = read_composed(path, include_scope(folder.parent if folder.name in FOLDERS else folder))
            found[path] = document
            included.update(file.resolve() for file in document.files)
        except ConfigError as error:
            found[path] = error
    return ((path, one) for path, one in found.items() if path in named or path.resolve() not in included)


def _paths_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in FORMATS and file.is_file())


def _add_name(document: object, path: Path) -> object:
    """Return a rule; without a name it gets the name of its file, as in a folder of definitions."""
    rule = cast("Any", document)
    is_unnamed = isinstance(document, dict) and "patterns" in rule and rule.get("name") is None
    return {**rule, "name": path.stem} if is_unnamed else rule


def _check(document: ComposedDocument, prefix: JsonPath, value: object) -> Iterator[RuleFinding]:
    for problem in check_rule(value):
        yield RuleFinding(document.place_of((*prefix, *problem.path)), problem.message, is_error=not problem.is_warning)


def _finding_of(error: ConfigError, path: Path) -> RuleFinding:
    """Return the finding of an error whose message begins with its file and, if it is known, its line."""
    rest = str(error).removeprefix(f"{path}:")
    line, colon, message = rest.partition(":")
    if colon and line.isdigit():
        return RuleFinding(f"{path}:{line}", message.strip())
    return RuleFinding(str(path), rest.strip())


def _print_findings(findings: Sequence[RuleFinding]) -> None:
    for finding in findings:
        kind = "error" if finding.is_error else "warning"
        click.echo(f"{kind}: {as_printable(f'{finding.place}: {finding.message}')}", err=True)


def _compile(rules: Sequence[MatchRule], template: str | None) -> CompiledRules:
    if template is None:
        return compile_rules(rules)
    path = options.expand_path(template)
    with read_errors(path):
        source = path.read_text(encoding="utf-8")
    try:
        return compile_rules(rules, template=source)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


# --------------------------------------------------------------------------------------------------------------- tests


async def _run(
    rules: Sequence[MatchRule], open_registry: Callable[[], NamedModels], default: str, flags: dict[str, Any]
) -> MatchReport:
    tests = collect_tests(rules)
    registry = open_registry()
    try:
        matchers: dict[str, MatchFunction] = {}
        if flags["offline"]:
            matchers[OFFLINE] = _offline_matcher(rules, registry, flags)
        names = flags["model_names"] or (() if flags["offline"] else (default,))
        compiled = _compile(rules, flags["template"])
        matchers |= {name: _model_matcher(compiled, registry, name) for name in names}
        cases: dict[str, list[CaseReport]] = {}
        for name, matcher in matchers.items():
            progress = _Progress(name, len(tests), quiet=flags["quiet"])
            cases[name] = []
            async for case in run_tests(tests, matcher):
                cases[name].append(case)
                progress.add(case)
        return make_report(rules, cases)
    finally:
        await registry.close()


def _offline_matcher(rules: Sequence[MatchRule], registry: NamedModels, flags: dict[str, Any]) -> MatchFunction:
    embedder = registry.embedder(flags["embedder"]) if flags["embedder"] else None
    offline = OfflineMatcher(rules, threshold=flags["threshold"], embedder=embedder)

    async def match_text(text: str, number: int) -> tuple[Sequence[MatchResult], VakaError | None]:
        return await offline.match_async(text), None

    return match_text


def _model_matcher(compiled: CompiledRules, registry: NamedModels, name: str) -> MatchFunction:
    model = registry.find(name)

    async def match_text(text: str, number: int) -> tuple[Sequence[MatchResult], VakaError | None]:
        return await collect(compiled.match(model, text, number=number))

    return match_text


class _Progress:
    """Prints how far the tests of one model are."""

    def __init__(self, name: str, total: int, *, quiet: bool) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._passed = 0
        self._status = None if quiet else StatusLine()

    def add(self, case: CaseReport) -> None:
        self._done += 1
        self._passed += case.status == "pass"
        if self._status is not None:
            ended = self._done == self._total
            text = f"{'tested' if ended else 'testing'} {self._name}"
            self._status(text if self._done == 1 and not ended else f"{text}: {self._passed} of {self._done} passed")


# ------------------------------------------------------------------------------------------------------------- reports


def _write_report(report: MatchReport, form: str, output: str | None) -> None:
    if form == "json" and output is None:
        print_json(report)
        return
    if output is not None:
        path = options.expand_path(output)
        with read_errors(path):
            path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
        click.echo(f"{path}: written", err=True)
    if form == "text":
        for model in report.models:
            _print_model(model)


def _print_model(model: ModelReport) -> None:
    rows = [(one.rule or "(none)", str(one.passed), str(one.total), f"{one.pass_rate:.1f}%") for one in model.rules]
    total = ("all rules", str(model.passed), str(model.total_cases), f"{model.pass_rate:.1f}%")
    click.echo(as_printable(f"{model.model}"))
    print_table(("RULE", "PASSED", "TESTS", "ACCURACY"), [*rows, total])
    latency = f"latency: p50 {model.p50_ms:g} ms, p95 {model.p95_ms:g} ms, p99 {model.p99_ms:g} ms"
    click.echo(latency + (f"; {_count(model.errors, 'error')}" if model.errors else ""))
    wrong = [case for case in model.cases if case.status != "pass"]
    for case in wrong[:MAX_FAILURES_SHOWN]:
        click.echo(as_printable(_failure_text(case), lines=False))
    if len(wrong) > MAX_FAILURES_SHOWN:
        click.echo(f"… and {len(wrong) - MAX_FAILURES_SHOWN} more; --report json has all of them")


def _failure_text(case: CaseReport) -> str:
    expected = format_line(case.expected.rule, case.expected.args) or "no rule"
    if case.error is not msgspec.UNSET:
        return f"error: {shorten(case.input)}: {case.error}"
    actual = format_line(case.actual.rule, case.actual.args) or "no rule"
    said = "" if case.actual.raw_text is msgspec.UNSET else f" ({shorten(case.actual.raw_text)})"
    return f"fail: {shorten(case.input)}: expected {expected}, got {actual}{said}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
