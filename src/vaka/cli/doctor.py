"""``vaka doctor``: is everything in place?"""

import importlib.util
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Literal, TypeAlias

import click
import msgspec

from vaka import __version__
from vaka.cli import options
from vaka.cli.errors import FAILED, Quit
from vaka.cli.report import print_json
from vaka.cli.start import here, run_loop, runtime_of
from vaka.cli.table import print_table
from vaka.config.keys import KEYS, suggest
from vaka.config.layers import Settings, load, unknown_variables, without_password
from vaka.core.types.errors import VakaError
from vaka.sandbox.abilities import abilities
from vaka.sandbox.choose import choose

State: TypeAlias = Literal["ok", "note", "fail"]

EXTRAS = {
    "luau": "pyluau", "shell": "tree_sitter_bash", "definitions": "jinja2", "server": "starlette", "mcp": "mcp",
    "postgres": "asyncpg", "scale": "dbos", "otel": "opentelemetry", "metrics": "prometheus_client",
    "tui": "prompt_toolkit", "web": "markdownify", "watch": "watchfiles", "local": "xllamacpp", "embeddings": "numpy",
}  # fmt: skip
"""Each extra, and a module that is there when it is installed."""

PACKAGES = ("click", "msgspec", "httpx2", "jsonschema-rs", "pyyaml")
LLM_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
_PROBE = "doctor/probe"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: State
    detail: str


@click.command(epilog=options.examples("vaka doctor", "vaka doctor --json", "vaka doctor --reindex"))
@click.option("--reindex", is_flag=True, help="Make the store's index anew from its logs.")
@options.json_option
@options.store_options
def doctor(reindex: bool, as_json: bool, **given: Any) -> None:
    """Look at Python, packages, settings, the store, keys (never their values) and the sandbox. Exit code 0 or 1."""
    checks = [*_system(), *_packages(), *_surroundings()]
    settings, found = _settings(given)
    checks += found
    if settings is not None:
        checks += run_loop(_store(settings, reindex=reindex))
    good = all(check.state != "fail" for check in checks)
    if as_json:
        print_json({"ok": good, "checks": checks})
    else:
        print_table(("CHECK", "STATE", "DETAIL"), [(check.name, check.state, check.detail) for check in checks])
    if not good:
        raise Quit(FAILED)


def _system() -> Iterator[Check]:
    right = sys.version_info >= (3, 11)
    yield Check("python", "ok" if right else "fail", f"{platform.python_version()} at {sys.executable}")
    yield Check("system", "ok" if sys.platform == "linux" else "note", platform.platform())
    yield Check("sqlite", "ok", sqlite3.sqlite_version)
    yield from _sandbox()


def _sandbox() -> Iterator[Check]:
    """What this machine can enforce on commands, and with what."""
    said: list[str] = []
    chosen = choose("auto", say=said.append)
    held = ", ".join(sorted(chosen.enforces)) or "nothing"
    yield Check("sandbox", "note" if said else "ok", "; ".join([f"{chosen.name}, which enforces {held}", *said]))
    here = abilities()
    if here.system != "linux":
        return
    yield Check("bubblewrap", "ok" if here.bubblewrap else "note", here.bubblewrap or here.no_bubblewrap)
    spaces = "with namespaces" if here.namespaces else "without namespaces, which are switched off"
    landlock = f"version {here.landlock}, {spaces}" if here.landlock else "this kernel has none"
    yield Check("landlock", "ok" if here.landlock else "note", landlock)
    groups = ", ".join(sorted(here.groups)) or "nothing"
    rest = "" if "memory" in here.groups else "; vaka itself watches the memory of commands"
    root = here.root and "pids" not in here.groups
    unbound = "; root obeys no other bound on processes" if root else ""
    yield Check("limits", "note" if root else "ok", f"control groups bound {groups}{rest}{unbound}")


def _packages() -> Iterator[Check]:
    yield Check("vaka", "ok", __version__)
    for name in PACKAGES:
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, "fail", f"not installed; pip install {name}")
    there = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module) is not None]
    missing = [extra for extra in EXTRAS if extra not in there]
    yield Check("extras", "ok", f"{', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}")


def _surroundings() -> Iterator[Check]:
    keys = [name for name in LLM_KEYS if os.environ.get(name)]
    yield Check("keys", "ok" if keys else "note", ", ".join(f"{name} is set" for name in keys) or "none is set")
    for name in unknown_variables(os.environ):
        known = [key.variable for key in KEYS.values()]
        yield Check("environment", "note", f"{name} means nothing to vaka; {suggest(name, known)}")


def _settings(given: dict[str, Any]) -> tuple[Settings | None, list[Check]]:
    try:
        settings = load(here(), {name: given[name] for name in ("store", "durability")})
    except VakaError as error:
        return None, [Check("settings", "fail", str(error))]
    files = [str(file) for file in (here().user_file, here().project_file) if file is not None and file.is_file()]
    notes = [Check("settings", "note", note) for note in settings.notes]
    return settings, [Check("settings", "ok", ", ".join(files) or "no files: defaults"), *notes]


async def _store(settings: Settings, *, reindex: bool) -> list[Check]:
    name = without_password(settings["store"])
    try:
        async with runtime_of(settings) as runtime:
            began = time.perf_counter()
            await runtime.store.values.put(_PROBE, time.time())
            took = (time.perf_counter() - began) * 1000
            await runtime.store.values.put(_PROBE, None)
            checks = [Check("store", "ok", f"{name}, a durable write took {took:.1f} ms ({settings['durability']})")]
            if reindex:
                checks.append(Check("reindex", "ok", f"{await runtime.store.reindex()} sessions"))
    except (VakaError, OSError) as error:
        return [Check("store", "fail", f"{name}: {error}")]
    return checks
