"""From flags and settings to a runtime."""

import asyncio
import math
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

from vaka.agents.react import Agent
from vaka.cli.errors import INTERRUPTED, Quit, UsageError
from vaka.cli.loading import Loading
from vaka.cli.signals import Signals
from vaka.config.keys import KEYS
from vaka.config.layers import Place, Settings, load
from vaka.config.permissions import load_permissions
from vaka.core.ports.sandbox import Bounds
from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import session_id
from vaka.policy.layered import LayeredPolicy
from vaka.runtime.options import Options
from vaka.runtime.permissions import policy_of
from vaka.runtime.runtime import Runtime

T = TypeVar("T")

GRACE = 2.0
"""Seconds that tasks get to leave when everything else is over."""


def here() -> Place:
    """Return where this process stands."""
    return Place(cwd=Path.cwd(), home=Path.home(), environ=os.environ)


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Return the settings in force, ``flags`` included; whatever else ``flags`` holds is not looked at."""
    known = {name: value for name, value in flags.items() if name in KEYS}
    if flags.get("ephemeral"):
        if known.get("store"):
            raise UsageError("--ephemeral keeps nothing, so it cannot go with --store; leave one of them out")
        known["store"] = "memory:"
    settings = load(here(), known, trust=bool(flags.get("trust")))
    settings.file = flags.get("settings") or ""
    _tell(settings.notes)
    return settings


def policy_for(settings: Settings) -> LayeredPolicy:
    """Return the rules in force here: of the ``.claude`` files, of vaka's own, and those that were typed."""
    place = here()
    file = Path(settings.file).expanduser() if settings.file else None
    found = load_permissions(place, settings=file, flags=settings, trust=settings.trust)
    policy = policy_of(found.layers, cwd=str(place.cwd), home=str(place.home))
    _tell((*found.notes, *policy.notes))
    return policy


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def has_terminal() -> bool:
    """Whether a person can be asked here."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def runtime_of(settings: Settings, agent: Agent | None = None, *, quiet: bool = False) -> Runtime:
    """Return the runtime the settings describe. Closing it is the caller's."""
    return Runtime(
        Options(
            store=settings["store"], durability=settings["durability"], agent=agent,
            **model_options(settings, quiet=quiet), **world_options(settings),
            ask=settings["ask"] or ("wait" if has_terminal() else "deny"),
            policy=policy_for(settings) if agent is not None else None,
            secrets=secrets(os.environ, settings["store"]), trusted_hosts=settings["allow_host"],
            script_env={name: os.environ[name] for name in settings["script_env"] if name in os.environ},
        )
    )  # fmt: skip


def model_options(settings: Settings, *, quiet: bool = False) -> dict[str, Any]:
    """Return what the settings say of models, as options of a runtime."""
    return {
        "model": settings["model"] or None, "models": settings["models"], "model_pool": settings["tiers"],
        "subagent_model_mapping": settings["subagents"], "prices": settings["prices"], "retries": settings["retries"],
        "model_files": settings["model_files"], "progress": None if quiet else Loading(),
    }  # fmt: skip


def world_options(settings: Settings) -> dict[str, Any]:
    """Return what the settings say of files and commands, as options of a runtime."""
    mib = 1024 * 1024
    cpu = settings["command_cpu"]
    return {
        "cwd": str(here().cwd), "add_dirs": settings["add_dir"], "sandbox": settings["sandbox"],
        "snapshots": settings["snapshots"] == "on",
        "command_hosts": settings["command_host"], "command_env": settings["command_env"],
        "command_limits": Bounds(
            cpu_seconds=math.ceil(cpu) if cpu else None, memory_bytes=settings["command_memory"] * mib,
            processes=settings["command_processes"], file_bytes=settings["command_file_size"] * mib,
        ),
    }  # fmt: skip


def with_runtime(given: Mapping[str, Any], work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with the runtime that flags and settings describe."""
    settings = settings_of(given)

    async def go() -> T:
        async with runtime_of(settings) as runtime:
            return await work(runtime)

    return run_loop(go())


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Do what ``asyncio.run`` does, but never wait for a task that will not leave. A signal cancels the work."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    with Signals(loop, task.cancel) as signals:
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            raise Quit(signals.code or INTERRUPTED) from None
        finally:
            _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left and loop.run_until_complete(asyncio.wait(left, timeout=GRACE))[1]:
        loop.set_exception_handler(lambda loop, context: None)  # a tool that would not stop; its turn has said so
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def found(runtime: Runtime, session: str) -> SessionInfo:
    """Return a session's row; ``NotFound`` when there is none."""
    info = await runtime.store.sessions.find(session_id(session))
    if info is None:
        raise NotFound(f"there is no session {session!r}; `vaka sessions list` shows those of this store")
    return info


def secrets(environ: Mapping[str, str], store: str) -> tuple[str, ...]:
    """Return the values that must never be written down: keys of the environment, the store's password."""
    keys = [value for name, value in environ.items() if name.endswith("_API_KEY") and len(value) >= 8]
    password = urlsplit(store).password
    return (*keys, unquote(password)) if password else tuple(keys)
