"""``vaka models``: list providers and models, test one, serve the local one."""

import os
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click
import msgspec

from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import model_options, settings_from_flags
from vaka.cli.kit.errors import OK, Quit, describe_error
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import StatusLine, as_printable, print_json, print_table, shorten
from vaka.config.model_tables import hide_userinfo, is_base_url, is_loopback_url
from vaka.config.settings import Settings, redact_setting
from vaka.core.loop.assemble import MessageAssembly, RawToolCall
from vaka.core.ports.model import NoticeChunk, Prompt, RetryChunk
from vaka.core.types.errors import BadRequest, ConfigError, ModelError, VakaError
from vaka.core.types.ids import MessageId
from vaka.core.types.message import Text, Usage, UserMessage, as_content
from vaka.core.types.tool import ToolSpec
from vaka.runtime import providers
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.runtime.providers import Provider
from vaka.runtime.stored_keys import KEYRING_PLACE, find_key

if TYPE_CHECKING:
    from vaka.models.local.model import ServedModel

MAX_TRIAL_TOKENS = 1024
"""The most tokens of a trial answer: a reasoning model needs some before its first word."""

_TRIAL_TOOL = ToolSpec(
    name="report_temperature",
    description="Report the temperature of a place.",
    parameters={
        "type": "object",
        "properties": {"celsius": {"type": "number", "description": "Degrees Celsius."}},
        "required": ["celsius"],
        "additionalProperties": False,
    },
)
_ADVICE = {
    "authentication": "store a key with `vaka login`, or set its variable; `vaka models list` names it",
    "rate_limited": "wait and try again, or ask the provider for a higher limit",
    "model_unavailable": "try again; if it fails again, check the address and the network",
    "stream_cut": "try again; if it fails again, a proxy between here and the provider may cut answers off",
    "bad_request": "check the name of the model and its options; the message is the provider's",
    "model_refused": "check the account and the name of the model",
    "context_too_long": "the server's context window is too small even for this; configure a larger one",
    "config": "correct the name or the setting; `vaka models list` shows what there is",
}
_TEXT_CALLS_ADVICE = "for a model without function calling set text_calls = true in its settings"
TrialKind: TypeAlias = Literal["answer", "tools"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one small request to a model."""

    check: TrialKind
    ok: bool
    said: str = ""
    stop: str = ""
    model: str = ""
    """The provider's name of the model."""
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
    """List models and keys, test a model, or serve the local one."""


@models.command("list", epilog=options.format_examples("vaka models list", "vaka models list --json"))
@options.json_option
@options.store_options
def list_(as_json: bool, **flags: Any) -> None:
    """List providers and where their key is (never the key), models of your settings, tiers, and local."""
    from vaka.models.local.model import missing_install_command

    settings = settings_from_flags(flags)
    registry = ModelRegistry(Options(**model_options(settings)).build_model_config())
    missing = missing_install_command()
    listing = {
        "providers": [_provider_row(provider) for provider in providers.all_providers()],
        "models": _defined_models(registry, settings),
        "tiers": settings["tiers"],
        "subagents": settings["subagents"],
        "default": settings["model"] or None,
        "local": {"available": not missing, "install": missing or None},
        "notes": list(registry.factory.notes),
    }
    if as_json:
        print_json(listing)
    else:
        _print_listing(listing)


@models.command(
    epilog=options.format_examples("vaka models test openai/gpt-5-mini", "vaka models test local --tools --json")
)
@click.argument("name")
@click.option("--tools", is_flag=True, help="Also ask for one tool call.")
@options.json_option
@options.store_options
def test(name: str, tools: bool, as_json: bool, **flags: Any) -> None:
    """Send a model one small request and report the result. It costs a few tokens.

    Exit codes: 0 it works, 3 unknown model, 4 the key is missing or refused, 6 the model failed, 75 it cannot be
    reached now.
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
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; by default a free one.")
@click.option("--key-env", metavar="NAME", help="The variable with the key that clients need; by default a random key.")
@click.option("--no-key", is_flag=True, help="Serve every client that reaches the port, without a key.")
@options.json_option
@options.verbose_option
def serve_local(host: str, port: int, key_env: str | None, no_key: bool, as_json: bool, verbose: bool) -> None:
    """Serve the local model to other programs, until Ctrl-C.

    It speaks Chat Completions, Responses and Anthropic Messages. Once it is ready, the first line of stdout is its URL.
    """
    key = "" if no_key else None
    if key_env:
        key = os.environ.get(key_env, "")
        if not key:
            raise ConfigError(f"--key-env {key_env}: the variable is not set")

    def print_address(serving: "ServedModel") -> None:
        if as_json:
            print_json({"url": serving.url, "key": serving.key or None, "model": serving.model})
            return
        click.echo(serving.url)
        click.echo(
            f"use it with: export OPENAI_BASE_URL={serving.url} OPENAI_API_KEY={serving.key or 'none'}", err=True
        )
        click.echo('        then: vaka run "Say hello." --model openai-chat/local', err=True)

    from vaka.models.local.model import serve

    run_loop(serve(host, port, key=key, progress=StatusLine(), ready=print_address))


def _provider_row(provider: Provider) -> dict[str, Any]:
    from vaka.runtime.stored_keys import key_environment

    found = find_key(key_environment(), provider.variables)
    address = os.environ.get(provider.base_env, "").strip() or provider.base_url
    if not address:
        state = "no address"
    elif found is not None:
        state = "stored" if found.place else "set"
    else:
        state = "not needed" if provider.local or is_loopback_url(address) else "not set"
    shown = hide_userinfo(providers.normalize_base_url(provider, address)) if is_base_url(address) else ""
    return {
        "name": provider.name,
        "wire": provider.wire,
        "key": state,
        "key_from": (found.place or found.variable) if found is not None else None,
        "variables": list(provider.variables),
        "address": shown,
        "address_variable": provider.base_env,
    }


def _defined_models(models: ModelRegistry, settings: Settings) -> list[dict[str, Any]]:
    """Return the models of settings and model files, each with its origin and, if it cannot be built, the problem."""
    entries = redact_setting("models", settings["models"])
    origins = settings.values["models"].parts
    rows: list[dict[str, Any]] = [
        {"name": name, "origin": origins.get(name, ""), **entry} for name, entry in entries.items()
    ]
    rows += [
        {"name": name, "origin": definition.origin, "model": definition.model, "wire": definition.wire}
        for name, definition in models.factory.load_definitions().items()
        if name not in entries
    ]
    for row in rows:
        try:
            models.find(row["name"])
        except VakaError as error:
            row["problem"] = str(error)
    return rows


def _print_listing(listing: dict[str, Any]) -> None:
    head = ("PROVIDER", "KEY", "FROM", "WIRE", "ADDRESS")
    rows = [
        (
            f"{one['name']}/…",
            one["key"],
            _key_origin(one),
            one["wire"],
            one["address"] or f"set {one['address_variable']}",
        )
        for one in listing["providers"]
    ]
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


def _key_origin(one: dict[str, Any]) -> str:
    """Return where the key of a provider is, or the variables that may hold it."""
    if one["key"] == "stored":
        return "vaka login (keyring)" if one["key_from"] == KEYRING_PLACE else "vaka login (file)"
    return one["key_from"] or " or ".join(one["variables"])


def _model_target(one: dict[str, Any]) -> str:
    where = one.get("provider") or one.get("wire", "")
    at = f" at {one['base_url']}" if one.get("base_url") else ""
    return f"{f'{where}/' if where else ''}{one['model']}{at}"


async def _run_trials(name: str, settings: Settings, checks: tuple[TrialKind, ...]) -> list[Trial]:
    """Run the checks in order, up to the first that fails."""
    model_settings = model_options(settings)
    model_settings["models"] = msgspec.structs.replace(model_settings["models"], retries=0)
    registry = ModelRegistry(Options(**model_settings).build_model_config())
    trials: list[Trial] = []
    try:
        for check in checks:
            trials.append(await _run_trial(registry, name, check))
            if not trials[-1].ok:
                break
    finally:
        await registry.close()
    return trials


async def _ask(models: ModelRegistry, name: str, prompt: Prompt, began: float) -> tuple[MessageAssembly, float | None]:
    """Return the answer to a prompt, and the milliseconds until its first chunk."""
    answer, first_ms = MessageAssembly(MessageId("")), None
    async with aclosing(models.find(name).stream(prompt)) as chunks:
        async for chunk in chunks:
            if first_ms is None and not isinstance(chunk, NoticeChunk | RetryChunk):
                first_ms = _milliseconds_since(began)
            answer.feed(chunk)
    return answer, first_ms


async def _run_trial(models: ModelRegistry, name: str, check: TrialKind) -> Trial:
    began = time.monotonic()
    try:
        try:
            answer, first_ms = await _ask(models, name, _trial_prompt(check), began)
        except BadRequest:
            if check != "tools":
                raise
            unforced = msgspec.structs.replace(_trial_prompt(check), tool_choice="auto")  # some models cannot be forced
            answer, first_ms = await _ask(models, name, unforced, began)
    except VakaError as error:
        failure = describe_error(error)
        return Trial(
            check=check,
            ok=False,
            code=failure.code,
            error=failure.message,
            advice=_ADVICE.get(failure.code, ""),
            exit_code=failure.exit,
            total_ms=_milliseconds_since(began),
        )
    text = "".join(part.text for part in answer.parts() if isinstance(part, Text))
    calls = [part for part in answer.parts() if isinstance(part, RawToolCall)]
    problem = _find_problem(check, answer.stop or "", text, calls)
    return Trial(
        check=check,
        ok=not problem,
        stop=answer.stop or "",
        model=answer.model,
        first_ms=first_ms,
        said=shorten(" ".join(f"{call.name} {call.arguments}" for call in calls) or text),
        total_ms=_milliseconds_since(began),
        usage=answer.usage,
        cost=answer.usage.cost,
        code="model" if problem else "",
        error=problem,
        exit_code=ModelError.exit_code if problem else OK,
        advice=_TEXT_CALLS_ADVICE if problem and check == "tools" else "",
    )


def _trial_prompt(check: TrialKind) -> Prompt:
    forced = check == "tools"
    order = f"It is 21 degrees Celsius outside. Call {_TRIAL_TOOL.name} to report it."
    text = order if forced else "Answer with the one word: ready."
    return Prompt(
        messages=(UserMessage(content=as_content(text)),),
        tools=(_TRIAL_TOOL,) if forced else (),
        tool_choice=_TRIAL_TOOL.name if forced else "auto",
        options={"max_tokens": MAX_TRIAL_TOKENS},
        agent="test",
    )


def _find_problem(check: TrialKind, stop: str, text: str, calls: list[RawToolCall]) -> str:
    """Return what is wrong with an answer, ``""`` when nothing is."""
    if not stop:
        return "the answer was cut: it ended without its end marker"
    if check == "answer":
        return "" if text.strip() else f"the answer is empty (stop: {stop})"
    for call in calls:
        if call.name == _TRIAL_TOOL.name:
            return _argument_problem(call.arguments)
    return f"the answer does not call {_TRIAL_TOOL.name}, which was required (stop: {stop})"


def _argument_problem(arguments: str) -> str:
    try:
        value = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return f"the arguments of its call are not a JSON object: {error}"
    return "" if isinstance(value.get("celsius"), int | float) else "its call lacks the number celsius"


def _print_trial(name: str, trial: Trial) -> None:
    """Print a trial: a success on stdout, a failure on stderr."""
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
    click.echo(f"  first chunk after {trial.first_ms:g} ms, complete after {trial.total_ms:g} ms; {tokens}")


def _milliseconds_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
