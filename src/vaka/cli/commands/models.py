"""``vaka models``: list providers and models, test one, serve the local one."""

import os
import time
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

import click
import msgspec

from vaka.cli import options
from vaka.cli.bootstrap import model_options, run_loop, settings_from_flags
from vaka.cli.errors import OK, Quit, describe_error
from vaka.cli.render import StatusLine, as_printable, print_json, print_table, shorten
from vaka.config.model_tables import hide_userinfo, is_base_url, is_loopback_url
from vaka.config.settings import Settings, redact_setting
from vaka.core.ports.model import CallChunk, Model, NoticeChunk, Prompt, RetryChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import ConfigError, ModelError, VakaError
from vaka.core.types.message import Usage, UserMessage, as_content
from vaka.core.types.tool import ToolSpec
from vaka.runtime import lazy, providers
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.runtime.providers import Provider

MAX_TRIAL_TOKENS = 1024
"""Tokens that a trial answer may have: a model that thinks needs some before it says a word."""

_TRIAL_TOOL = ToolSpec(
    name="report_temperature", description="Report the temperature of a place.",
    parameters={
        "type": "object", "properties": {"celsius": {"type": "number", "description": "Degrees Celsius."}},
        "required": ["celsius"], "additionalProperties": False,
    },
)  # fmt: skip
_ADVICE = {
    "authentication": "set the variable with the right key; `vaka models list` names it",
    "rate_limited": "wait and try again, or ask the provider for a higher limit",
    "model_unavailable": "try again; if it stays so, check the address and the network",
    "stream_cut": "try again; if it stays so, something between here and the provider cuts answers off",
    "bad_request": "the provider says what is wrong; check the name of the model, and its options",
    "model_refused": "check the account and the name of the model",
    "context_too_long": "the server's window is too small for even this; give it a larger one",
    "config": "correct the name or the setting; `vaka models list` shows what there is",
}
_TEXT_CALLS_ADVICE = "a model without function calling is asked in plain text with text_calls = true in its settings"
TrialKind: TypeAlias = Literal["answer", "tools"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking a model one small thing."""

    check: TrialKind
    ok: bool
    said: str = ""
    stop: str = ""
    model: str = ""
    """What the provider calls it."""
    first_ms: float | None = None
    total_ms: float = 0.0
    usage: Usage = Usage()
    cost: float = 0.0
    code: str = ""
    error: str = ""
    advice: str = ""
    exit_code: int = OK


@click.group()
def models() -> None:
    """List models and keys, try one, or serve the one on this machine."""


@models.command("list", epilog=options.format_examples("vaka models list", "vaka models list --json"))
@options.json_option
@options.store_options
def list_(as_json: bool, **flags: Any) -> None:
    """List providers and whether their key is set (never the key), the names of your settings, tiers, and local."""
    settings = settings_from_flags(flags)
    book = ModelRegistry(Options(**model_options(settings)).build_model_config())
    own = _defined_models(book, settings)
    listing = {
        "providers": [_provider_row(provider) for provider in providers.all_providers()], "models": own,
        "tiers": settings["tiers"], "subagents": settings["subagents"], "default": settings["model"] or None,
        "local": _local_status(), "notes": list(book.factory.notes),
    }  # fmt: skip
    if as_json:
        print_json(listing)
        return
    _print_listing(listing)


@models.command(
    epilog=options.format_examples("vaka models test openai/gpt-5-mini", "vaka models test local --tools --json")
)
@click.argument("name")
@click.option("--tools", is_flag=True, help="Also let it make one call that it must make.")
@options.json_option
@options.store_options
def test(name: str, tools: bool, as_json: bool, **flags: Any) -> None:
    """Ask a model one small thing and say how that went. It costs a few tokens.

    Exit codes: 0 it works, 3 there is no such model, 4 the key is missing or refused, 6 it cannot do this, 75 it cannot
    be reached now.
    """
    settings = settings_from_flags(flags)
    checks: tuple[TrialKind, ...] = ("answer", "tools") if tools else ("answer",)
    trials = run_loop(_run_trials(name, settings, checks))
    failed = next((trial for trial in trials if not trial.ok), None)
    if as_json:
        print_json({"name": name, "ok": failed is None, "trials": trials})
    else:
        for trial in trials:
            _print_trial(name, trial)
    raise Quit(failed.exit_code if failed else OK)


@models.command(
    "serve-local",
    epilog=options.format_examples("vaka models serve-local", "vaka models serve-local --port 8080 --json"),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; by default one that is free.")
@click.option("--key-env", metavar="NAME", help="The variable with the key clients must have; by default one is made.")
@click.option("--no-key", is_flag=True, help="Whoever reaches the port may ask.")
@options.json_option
@click.option("-v", "--verbose", is_flag=True, help="Say more; show where an error came from.")
def serve_local(host: str, port: int, key_env: str | None, no_key: bool, as_json: bool, verbose: bool) -> None:
    """Serve the small model of this machine to other programs, until Ctrl-C.

    It speaks Chat Completions, Responses and Anthropic Messages. The first line of stdout says where, once it is ready.
    """
    key = "" if no_key else None
    if key_env:
        key = os.environ.get(key_env, "")
        if not key:
            raise ConfigError(f"--key-env {key_env}: the variable is not set")

    def ready(serving: Any) -> None:
        if as_json:
            print_json({"url": serving.url, "key": serving.key or None, "model": serving.model})
            return
        click.echo(serving.url)
        click.echo(
            f"use it with: export OPENAI_BASE_URL={serving.url} OPENAI_API_KEY={serving.key or 'none'}", err=True
        )
        click.echo('        then: vaka run "Say hello." --model openai-chat/local', err=True)

    served: Coroutine[Any, Any, None] = lazy.load(lazy.SERVE_LOCAL)(
        host, port, key=key, progress=StatusLine(), ready=ready
    )
    run_loop(served)


def _provider_row(provider: Provider) -> dict[str, Any]:
    """Return what is known of a provider here, but for its key."""
    variable = next((name for name in provider.variables if os.environ.get(name, "").strip()), None)
    address = os.environ.get(provider.base_env, "").strip() or provider.base_url
    if not address:
        state = "no address"
    elif variable:
        state = "set"
    else:
        free = provider.local or is_loopback_url(address)
        state = "not needed" if free else "not set"
    return {
        "name": provider.name, "wire": provider.wire, "key": state, "key_from": variable,
        "variables": list(provider.variables), "address": _display_address(provider, address),
        "address_variable": provider.base_env,
    }  # fmt: skip


def _display_address(provider: Provider, address: str) -> str:
    """Return an address as it may be shown."""
    return hide_userinfo(providers.normalize_base_url(provider, address)) if is_base_url(address) else ""


def _defined_models(models: ModelRegistry, settings: Settings) -> list[dict[str, Any]]:
    """Return the names that settings and model files define, with where they do, and what is wrong with them."""
    entries = redact_setting("models", settings["models"])
    origins = settings.values["models"].parts
    found: list[dict[str, Any]] = [
        {"name": name, "origin": origins.get(name, ""), **entry} for name, entry in entries.items()
    ]
    found += [
        {"name": name, "origin": definition.origin, "model": definition.model, "wire": definition.wire}
        for name, definition in models.factory.load_definitions().items()
        if name not in entries
    ]
    for model in found:
        try:
            models.find(model["name"])
        except VakaError as error:
            model["problem"] = str(error)
    return found


def _local_status() -> dict[str, Any]:
    missing: str = lazy.load(lazy.LOCAL_MISSING)()
    return {"available": not missing, "install": missing or None}


def _print_listing(listing: dict[str, Any]) -> None:
    head = ("PROVIDER", "KEY", "VARIABLE", "WIRE", "ADDRESS")
    rows = [
        (
            f"{one['name']}/…", one["key"], one["key_from"] or " or ".join(one["variables"]), one["wire"],
            one["address"] or f"set {one['address_variable']}",
        )
        for one in listing["providers"]
    ]  # fmt: skip
    local = listing["local"]
    rows.append(("local", "not needed", "", "chat", "this machine" if local["available"] else local["install"]))
    print_table(head, rows)
    if listing["models"]:
        click.echo()
        own = [(one["name"], one.get("problem") or _model_target(one), one["origin"]) for one in listing["models"]]
        print_table(("NAME", "MODEL", "FROM"), own)
    if listing["tiers"]:
        click.echo()
        print_table(("TIER", "MODEL"), list(listing["tiers"].items()))
    for note in listing["notes"]:
        click.echo(f"note: {as_printable(note)}", err=True)


def _model_target(one: dict[str, Any]) -> str:
    where = one.get("provider") or one.get("wire", "")
    at = f" at {one['base_url']}" if one.get("base_url") else ""
    return f"{f'{where}/' if where else ''}{one['model']}{at}"


async def _run_trials(name: str, settings: Settings, checks: tuple[TrialKind, ...]) -> list[Trial]:
    """Try a model; after a failure nothing more is tried."""
    given: dict[str, Any] = {**model_options(settings), "retries": 0}
    book = ModelRegistry(Options(**given).build_model_config())
    trials: list[Trial] = []
    try:
        for check in checks:
            trials.append(await _run_trial(book, name, check))
            if not trials[-1].ok:
                break
    finally:
        await book.close()
    return trials


async def _run_trial(models: ModelRegistry, name: str, check: TrialKind) -> Trial:
    began = time.monotonic()
    try:
        heard = await _request_answer(models.find(name), check)
    except VakaError as error:
        said = describe_error(error)
        advice = _ADVICE.get(said.code, "")
        return Trial(
            check=check, ok=False, code=said.code, error=said.message, advice=advice, exit_code=said.exit,
            total_ms=_elapsed_ms(began),
        )  # fmt: skip
    first = None if heard.first_chunk_at is None else round((heard.first_chunk_at - began) * 1000, 1)
    fault = heard.find_problem(check)
    advice = _TEXT_CALLS_ADVICE if fault and check == "tools" else ""
    return Trial(
        check=check,
        ok=not fault,
        said=heard.summary,
        stop=heard.stop,
        model=heard.model,
        first_ms=first,
        total_ms=_elapsed_ms(began),
        usage=heard.usage,
        cost=heard.usage.cost,
        code="model" if fault else "",
        error=fault,
        advice=advice,
        exit_code=ModelError.exit_code if fault else OK,
    )


class _ReceivedAnswer:
    """An answer as it came."""

    def __init__(self) -> None:
        self.text, self.stop, self.model = "", "", ""
        self.first_chunk_at: float | None = None
        self.calls: list[tuple[str, str]] = []
        self.usage = Usage()

    @property
    def summary(self) -> str:
        """The words, or the call."""
        return shorten(" ".join(f"{name} {arguments}" for name, arguments in self.calls) or self.text)

    def add_chunk(self, chunk: object) -> None:
        """Take the next piece."""
        if not isinstance(chunk, NoticeChunk | RetryChunk):
            self.first_chunk_at = self.first_chunk_at or time.monotonic()
        if isinstance(chunk, TextChunk):
            self.text += chunk.text
        elif isinstance(chunk, CallChunk):
            while len(self.calls) <= chunk.index:
                self.calls.append(("", ""))
            name, arguments = self.calls[chunk.index]
            self.calls[chunk.index] = name or chunk.name, arguments + chunk.arguments
        elif isinstance(chunk, UsageChunk):
            self.usage, self.model = chunk.usage, chunk.model
        elif isinstance(chunk, StopChunk):
            self.stop = chunk.reason

    def find_problem(self, check: TrialKind) -> str:
        """Return what is wrong with the answer, ``""`` when nothing is."""
        if not self.stop:
            return "the answer was cut: it ended without its end marker"
        if check == "answer":
            return "" if self.text.strip() else f"it said nothing (stop: {self.stop})"
        for name, arguments in self.calls:
            if name == _TRIAL_TOOL.name:
                return _argument_problem(arguments)
        return f"it had to call {_TRIAL_TOOL.name} and did not (stop: {self.stop})"


async def _request_answer(model: Model, check: TrialKind) -> _ReceivedAnswer:
    forced = check == "tools"
    says = "It is 21 degrees Celsius outside. Report it." if forced else "Answer with the one word: ready."
    prompt = Prompt(
        messages=(UserMessage(content=as_content(says)),), tools=(_TRIAL_TOOL,) if forced else (),
        tool_choice=_TRIAL_TOOL.name if forced else "auto", options={"max_tokens": MAX_TRIAL_TOKENS}, agent="test",
    )  # fmt: skip
    heard = _ReceivedAnswer()
    async with aclosing(model.stream(prompt)) as chunks:
        async for chunk in chunks:
            heard.add_chunk(chunk)
    return heard


def _argument_problem(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return f"it wrote arguments that cannot be used: {error}"
    return "" if isinstance(value.get("celsius"), int | float) else "its call lacks the number celsius"


def _print_trial(name: str, trial: Trial) -> None:
    """Say how a trial went: what works to stdout, what does not to stderr."""
    what = {"answer": "answers", "tools": "calls tools"}[trial.check]
    if not trial.ok:
        who = "" if trial.error.startswith(name) or name in trial.error.partition(";")[0] else f"{name}: "
        click.echo(f"error: {as_printable(who + trial.error)}", err=True)
        if trial.advice:
            click.echo(f"what to do: {trial.advice}", err=True)
        return
    model = f" as {as_printable(trial.model)}" if trial.model and trial.model not in name else ""
    cost = f", US$ {trial.cost:.6f}" if trial.cost else ""
    tokens = f"{trial.usage.input} tokens in, {trial.usage.output} out{cost}"
    click.echo(f"{as_printable(name)} {what}{model}: {trial.said}")
    click.echo(f"  first piece after {trial.first_ms:g} ms, whole after {trial.total_ms:g} ms; {tokens}")


def _elapsed_ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
