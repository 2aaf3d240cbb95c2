"""``vaka doctor``: check Python, packages, optional features, settings, the store, API keys and the sandbox."""

import importlib.util
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from importlib import metadata
from typing import Any

import click

from vaka import __version__
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, runtime_from_settings
from vaka.cli.kit.checks import Check
from vaka.cli.kit.errors import FAILED, Quit
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import print_json, print_table
from vaka.config.documents import suggest
from vaka.config.model_tables import hide_password
from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import Settings, load_settings, unknown_variables
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import ReadOnlyStore, VakaError
from vaka.feature import find_features
from vaka.luau.program import INSTALL_PYLUAU
from vaka.models.embedders import missing_embedder_command
from vaka.models.local.model import missing_install_command
from vaka.policy.bash.parse.reader import INSTALL_GRAMMAR
from vaka.runtime.log_check import check_log, list_sessions
from vaka.runtime.providers import all_providers
from vaka.runtime.stored_keys import stored_keys_of
from vaka.sandbox.select import detect_capabilities, select_sandbox

REQUIRED_PACKAGES = ("click", "msgspec", "httpx2", "jsonschema-rs", "pyyaml", "tree-sitter", "tree-sitter-bash")
_PROBE_KEY = "doctor/probe"


@click.command(epilog=options.format_examples("vaka doctor", "vaka doctor --json", "vaka doctor --reindex"))
@click.option("--reindex", is_flag=True, help="Rebuild the store's index from its logs, and check every log and blob.")
@options.json_option
@options.store_options
def doctor(reindex: bool, as_json: bool, **flags: Any) -> None:
    """Check Python, packages, settings, the store, keys (never their values), the sandbox, and what can be installed.

    The exit code is 0 or 1.
    """
    settings, settings_checks = _check_settings(flags)
    checks = [*_check_system(), *_check_packages(), *_check_features(), *_check_environment(), *settings_checks]
    if settings is not None:
        checks += run_loop(_check_store(settings, reindex=reindex))
    good = all(check.state != "fail" for check in checks)
    if as_json:
        print_json({"ok": good, "checks": checks})
    else:
        print_table(("CHECK", "STATE", "DETAIL"), [(check.name, check.state, check.detail) for check in checks])
    if not good:
        raise Quit(FAILED)


def _check_system() -> Iterator[Check]:
    supported = sys.version_info >= (3, 11)
    yield Check("python", "ok" if supported else "fail", f"{platform.python_version()} at {sys.executable}")
    yield Check("system", "ok" if sys.platform == "linux" else "note", platform.platform())
    yield Check("sqlite", "ok", sqlite3.sqlite_version)
    yield from _check_sandbox()


def _check_sandbox() -> Iterator[Check]:
    warnings: list[str] = []
    sandbox = select_sandbox("auto", warn=warnings.append)
    enforces = ", ".join(sorted(sandbox.enforces)) or "nothing"
    detail = "; ".join([f"{sandbox.name}, which enforces {enforces}", *warnings])
    yield Check("sandbox", "note" if warnings else "ok", detail)
    system = detect_capabilities()
    if system.system != "linux":
        return
    yield Check("bubblewrap", "ok" if system.bubblewrap else "note", system.bubblewrap or system.bubblewrap_problem)
    namespaces = "with namespaces" if system.has_namespaces else "without namespaces, which are switched off"
    landlock = f"version {system.landlock_abi}, {namespaces}" if system.landlock_abi else "not in this kernel"
    yield Check("landlock", "ok" if system.landlock_abi else "note", landlock)
    limited = ", ".join(sorted(system.cgroup_controllers)) or "nothing"
    memory = "" if "memory" in system.cgroup_controllers else "; vaka itself watches the memory of commands"
    unlimited = system.is_root and "pids" not in system.cgroup_controllers
    processes = "; no other limit on processes applies to root" if unlimited else ""
    yield Check("limits", "note" if unlimited else "ok", f"control groups limit {limited}{memory}{processes}")


def _check_packages() -> Iterator[Check]:
    yield Check("vaka", "ok", __version__)
    for name in REQUIRED_PACKAGES:
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, "fail", f"not installed; pip install {name}")


def _check_features() -> Iterator[Check]:
    """Yield what can be used here; for the rest, what to install."""
    bash = shutil.which("bash")
    grammar = "" if _is_installed("tree_sitter", "tree_sitter_bash") else INSTALL_GRAMMAR
    missing = "; ".join(filter(None, ("" if bash else "install the program bash", grammar)))
    yield _feature("Bash", f"{bash}, commands are parsed before they run", missing)
    chat = "" if _is_installed("rich", "prompt_toolkit") else "pip install 'vaka[tui]'"
    yield _feature("chat", "rich and prompt_toolkit", chat)
    yield _feature("Luau", "pyluau", "" if _is_installed("pyluau") else INSTALL_PYLUAU)
    yield _feature("local model", "xllamacpp and weights", missing_install_command())
    yield _feature("embeddings", "numpy, tokenizers, safetensors and weights", missing_embedder_command())
    definitions = "" if _is_installed("jq", "jinja2") else "pip install 'vaka[definitions]'"
    yield _feature("definitions", "jq and jinja2", definitions)
    server = (
        ""
        if _is_installed("starlette", "uvicorn", "httptools", "websockets", "jwt", "mcp")
        else "pip install 'vaka[server]'"
    )
    yield _feature("server", "starlette and uvicorn", server)
    yield _feature("PostgreSQL", "asyncpg", "" if _is_installed("asyncpg") else "pip install 'vaka[postgres]'")
    for feature in find_features():
        if feature.load_checks is not None:
            yield from feature.load(feature.load_checks)


def _feature(name: str, detail: str, missing: str) -> Check:
    return Check(name, "note", f"missing: {missing}") if missing else Check(name, "ok", detail)


def _is_installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _check_environment() -> Iterator[Check]:
    yield from _check_keys()
    for name in unknown_variables(os.environ):
        known = [key.variable for key in SETTING_KEYS.values()]
        yield Check("environment", "note", f"{name} is not a setting of vaka; {suggest(name, known)}")


def _check_keys() -> Iterator[Check]:
    """Yield where the keys of models are, never their values."""
    variables = dict.fromkeys(name for provider in all_providers() for name in provider.variables)
    keys = [f"{name} is set" for name in variables if os.environ.get(name, "").strip()]
    stored = stored_keys_of(os.environ)
    problems: list[str] = []
    for name in stored:
        try:
            keys.append(f"{name} is stored in {stored.place_of(name)}")
        except VakaError as error:
            problems.append(str(error))
    if keys or not problems:
        found = ", ".join(keys) or "none; `vaka login PROVIDER` stores one, and local needs none"
        yield Check("keys", "ok" if keys else "note", found)
    yield from (Check("keys", "fail", problem) for problem in problems)


def _check_settings(flags: dict[str, Any]) -> tuple[Settings | None, list[Check]]:
    try:
        settings = load_settings(config_context(), {name: flags[name] for name in ("store", "durability")})
    except VakaError as error:
        return None, [Check("settings", "fail", str(error))]
    candidates = (config_context().user_file, config_context().project_file)
    files = [str(file) for file in candidates if file is not None and file.is_file()]
    notes = [Check("settings", "note", note) for note in settings.notes]
    return settings, [Check("settings", "ok", ", ".join(files) or "no files: defaults"), *notes]


async def _check_write(store: Store, name: str, durability: str) -> Check:
    began = time.perf_counter()
    try:
        await store.values.put(_PROBE_KEY, time.time())
    except ReadOnlyStore as error:
        await store.sessions.list(SessionQuery(limit=1))
        return Check("store", "note", f"{name}: {error}")
    took = (time.perf_counter() - began) * 1000
    await store.values.put(_PROBE_KEY, None)
    return Check("store", "ok", f"{name}, a durable write took {took:.1f} ms ({durability})")


async def _check_sessions(store: Store) -> list[Check]:
    """Read every log and every blob that a log uses."""
    problems: list[Check] = []
    blobs = 0
    async with aclosing(list_sessions(store)) as rows:
        async for info in rows:
            found = await check_log(store, info)
            blobs += found.blobs
            if not found.ok:
                hint = "; the guide to integrity says how to repair it"
                problems.append(Check("sessions", "fail", f"{info.id}: {found.error}{hint}"))
    return problems or [Check("sessions", "ok", f"all events and {blobs} blobs can be read")]


async def _check_store(settings: Settings, *, reindex: bool) -> list[Check]:
    name = hide_password(settings["store"])
    try:
        async with runtime_from_settings(settings) as runtime:
            checks = [await _check_write(runtime.store, name, settings["durability"])]
            if reindex:
                checks.append(Check("reindex", "ok", f"{await runtime.store.reindex()} sessions"))
                checks += await _check_sessions(runtime.store)
    except (VakaError, OSError) as error:
        return [Check("store", "fail", f"{name}: {error}")]
    return checks
