"""``vaka login`` and ``vaka logout``: store, list and remove the keys of model providers."""

import os
import re
import sys

import click

from vaka.cli.build_agent import missing_model_message
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, has_terminal
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.render import print_json, print_table
from vaka.cli.strings import translate
from vaka.config.setting_keys import SETTING_KEYS, write_setting
from vaka.core.types.errors import AuthenticationFailed, ConfigError, NotFound
from vaka.runtime import providers
from vaka.runtime.providers import Provider
from vaka.runtime.stored_keys import StoredKeys, find_key, stored_keys_of

MIN_KEY_LENGTH = 8
MAX_KEY_LENGTH = 4096
SUGGESTED_MODELS = {
    "anthropic": "anthropic/claude-sonnet-5-5",
    "openai": "openai/gpt-5-mini",
    "gemini": "gemini/gemini-3.8-flash",
}
"""The providers that are offered to a new user, each with a model to begin with."""

_KEY_PAGES = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "gemini": "https://aistudio.google.com/apikey",
}

_KEY_PREFIXES = {
    "sk-ant-": "anthropic",
    "sk-or-": "openrouter",
    "sk-proj-": "openai",
    "AIza": "gemini",
    "gsk_": "groq",
    "xai-": "xai",
    "nvapi-": "nvidia",
    "pplx-": "perplexity",
    "hf_": "huggingface",
    "csk-": "cerebras",
    "ghp_": "github-models",
    "github_pat_": "github-models",
}
"""How the keys of one provider begin, and no others."""


@click.command(
    epilog=options.format_examples("vaka login anthropic", "vaka login openai --stdin < key.txt", "vaka login --list")
)
@click.argument("words", nargs=-1, metavar="[PROVIDER]")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the key from stdin instead of asking for it.")
@click.option("--force", is_flag=True, help="Store a key though it looks like one of another provider.")
@click.option("--list", "listed", is_flag=True, help="List the stored keys: where each is, never its value.")
@options.json_option
@options.verbose_option
def login(words: tuple[str, ...], from_stdin: bool, force: bool, listed: bool, as_json: bool, verbose: bool) -> None:
    """Store the key of a provider: in the system keyring if there is one, else in a file that only you can read.

    The key is asked for without echo. A variable such as OPENAI_API_KEY wins over the stored key.
    """
    config_context()  # reports an unusable HOME
    if listed:
        if words or from_stdin:
            raise UsageError("--list takes no provider and no key; leave them out")
        _list_keys(as_json=as_json)
        return
    provider = _parse_provider(words) if words else ask_provider()
    key = _read_stdin() if from_stdin else ask_key(provider)
    place = store_key(provider, key, force=force)
    if as_json:
        print_json({"provider": provider.name, "variable": provider.key_env[0], "place": place})


@click.command(epilog=options.format_examples("vaka logout anthropic"))
@click.argument("words", nargs=-1, required=True, metavar="PROVIDER")
@options.verbose_option
def logout(words: tuple[str, ...], verbose: bool) -> None:
    """Remove the stored key of a provider."""
    config_context()
    provider = _parse_provider(words)
    stored = stored_keys_of(os.environ)
    removed = [name for name in provider.variables if stored.remove(name)]
    if not removed:
        raise NotFound(f"there is no stored key for {provider.name}; `vaka login --list` shows those there are")
    click.echo(translate("The key of {provider} is removed.", provider=provider.name), err=True)
    _note_set_variable(provider)


def ask_provider() -> Provider:
    """Ask at the terminal for a provider."""
    if not has_terminal():
        raise UsageError("name the provider, such as `vaka login anthropic`; `vaka models list` lists them")
    click.echo(
        translate("The key of which provider? For example {names}.", names=", ".join(SUGGESTED_MODELS)), err=True
    )
    return _parse_provider((click.prompt(translate("provider"), err=True).strip(),))


def ask_key(provider: Provider) -> str:
    """Ask at the terminal for a key, without echo."""
    if not has_terminal():
        raise UsageError(
            f"there is no terminal to ask for the key; pass it as `vaka login {provider.name} --stdin < FILE`, or set "
            f"{provider.key_env[0]}"
        )
    question = translate("key of {provider} (it is not shown)", provider=provider.name)
    return str(click.prompt(question, hide_input=True, default="", show_default=False, err=True))


def store_key(provider: Provider, key: str, *, force: bool = False) -> str:
    """Check and store a key, say where it is and return that. Raises ``UsageError`` if it cannot be one."""
    key = key.strip()
    problem = key_problem(provider, key) or ("" if force else foreign_key_problem(provider, key))
    if problem:
        raise UsageError(problem)
    stored, variable = stored_keys_of(os.environ), provider.key_env[0]
    why = stored.add(variable, key)
    place = stored.place_of(variable)
    click.echo(translate("The key of {provider} is stored in {place}.", provider=provider.name, place=place), err=True)
    if why:
        click.echo(
            translate("Only you can read this file. The system keyring was not used: {reason}.", reason=why), err=True
        )
    _note_set_variable(provider)
    return place


def key_problem(provider: Provider, key: str) -> str:
    """Return why a text cannot be a key, ``""`` when it can. The text itself is not repeated."""
    variable = "|".join(map(re.escape, provider.variables))
    if not key:
        return "the key is empty"
    if re.match(rf"(?:export\s+)?(?:{variable})\s*=", key):
        return "this is an assignment of a variable; enter only the key, the text after the ="
    if re.match(r"bearer\s", key, re.IGNORECASE):
        return "leave out the word Bearer; enter only the key"
    if key[0] in "\"'`" or key[-1] in "\"'`":
        return "the key is in quotes; leave them out"
    if any(character.isspace() for character in key):
        return "the key holds whitespace, or there are several lines; copy it again"
    if not (key.isascii() and key.isprintable()):
        return "the key holds a character that no key has; copy it again"
    if not MIN_KEY_LENGTH <= len(key) <= MAX_KEY_LENGTH:
        return f"the key has {len(key)} characters; expected {MIN_KEY_LENGTH} to {MAX_KEY_LENGTH}; copy it again"
    return ""


def foreign_key_problem(provider: Provider, key: str) -> str:
    """Return that a key looks like one of another provider, ``""`` when it does not."""
    owner = next((owner for prefix, owner in _KEY_PREFIXES.items() if key.startswith(prefix)), provider.name)
    other = providers.find(owner)
    if other is None or set(other.variables) & set(provider.variables):
        return ""
    return f"this looks like a key of {owner}; run `vaka login {owner}`, or add --force if {provider.name} accepts it"


def choose_first_model() -> str:
    """Show a new user the models to begin with, ask for one and its key, and make it the default; return its name."""
    choices = _print_first_models()
    number = _ask_number(len(choices))
    if not number:
        raise ConfigError(missing_model_message())
    model = choices[number - 1]
    ask_missing_key(model)
    write_setting(config_context().user_file, SETTING_KEYS["model"], model)
    click.echo(translate("{model} is your model now; `vaka config set model NAME` changes it.", model=model), err=True)
    return model


def _print_first_models() -> list[str]:
    """Print the models to begin with, and return the selectable models in the order of their numbers."""
    from vaka.models.local.model import missing_install_command
    from vaka.runtime.stored_keys import key_environment

    install, environ = missing_install_command(), key_environment()
    lines = [translate("vaka needs a model. Choose one to begin with:"), ""]
    local = translate("a small model here: no key, no cost, no tools")
    choices = [*(() if install else ("local",)), *SUGGESTED_MODELS.values()]
    for number, name in enumerate(choices, start=1):
        provider = provider_of_model(name)
        known = provider is not None and find_key(environ, provider.variables) is not None
        key = translate("its key is there") if known else translate("asks for your key, and stores it")
        lines.append(f"  {number}  {name:28}  {local if provider is None else key}")
    if install:
        lines += [f"  -  {'local':28}  {local}", " " * 35 + translate("to install it: {command}", command=install)]
    lines += ["", translate("More: `vaka models list`. Variables such as ANTHROPIC_API_KEY are used, too.")]
    click.echo("\n".join(lines), err=True)
    return choices


def ask_missing_key(model: str) -> None:
    """Ask for the key of a model and store it, unless there is one or none is needed. Enter alone is the error."""
    provider = provider_of_model(model)
    if provider is None:
        return
    try:
        from vaka.runtime.stored_keys import key_environment

        providers.resolve_account(provider, key_environment())
    except AuthenticationFailed as missing:
        click.echo(translate("There is no key for {provider} yet.", provider=provider.name), err=True)
        if page := _KEY_PAGES.get(provider.name):
            click.echo(translate("You get one at {page}.", page=page), err=True)
        while key := ask_key(provider).strip():
            try:
                store_key(provider, key)
            except UsageError as error:
                click.echo(f"error: {error.message}", err=True)
            else:
                return
        raise missing from None


def provider_of_model(model: str) -> Provider | None:
    """Return the provider that a name of the form PROVIDER/MODEL begins with."""
    name, slash, _ = model.partition("/")
    return providers.find(name) if slash else None


def _ask_number(most: int) -> int:
    """Return the number that the user enters; 0 for none."""
    question = translate("number (Enter leaves)")
    while True:
        text = str(click.prompt(question, default="", show_default=False, err=True)).strip()
        if not text or (text.isdecimal() and 1 <= int(text) <= most):
            return int(text or 0)
        click.echo(translate("Enter a number from 1 to {most}.", most=most), err=True)


def _parse_provider(words: tuple[str, ...]) -> Provider:
    """Return the provider of the only argument; others may be keys, so messages do not repeat them."""
    first = words[0]
    provider = providers.find(first.lower())
    if len(words) > 1:
        raise UsageError(
            "expected only the name of a provider; a key must not be an argument, since other programs and the history "
            "of the shell can see it: enter it when you are asked for it, or use --stdin"
        )
    if provider is None:
        names = [one.name for one in providers.all_providers()]
        shown = repr(first) if first.isalpha() else "this"  # a key is not repeated
        raise UsageError(f"{shown} is not a provider; expected one of {', '.join(names)}")
    if not provider.key_env:
        raise UsageError(f"{provider.name} needs no key")
    return provider


def _read_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--stdin reads the key from a file or a pipe; leave it out to be asked for the key")
    return sys.stdin.buffer.read(MAX_KEY_LENGTH + 1).decode("utf-8", "replace")


def _note_set_variable(provider: Provider) -> None:
    variable = next((name for name in provider.variables if os.environ.get(name, "").strip()), "")
    if variable:
        click.echo(translate("note: {variable} is set, and wins over a stored key.", variable=variable), err=True)


def _list_keys(*, as_json: bool) -> None:
    stored: StoredKeys = stored_keys_of(os.environ)
    owners = {name: one.name for one in reversed(providers.all_providers()) for name in one.variables}
    keys = [
        {
            "provider": owners.get(name, ""),
            "variable": name,
            "place": stored.place_of(name),
            "overridden": bool(os.environ.get(name, "").strip()),
        }
        for name in stored
    ]
    if as_json:
        print_json({"keys": keys})
        return
    rows = [(str(key["provider"]), str(key["variable"]), str(key["place"])) for key in keys]
    print_table(("PROVIDER", "VARIABLE", "STORED IN"), rows)
