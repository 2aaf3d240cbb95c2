"""Start the engine of hooks with the hooks of the options and of the components in use."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import Env
from vaka.hooks import HookEngine, HookSettings, make_middleware
from vaka.hooks.command import run_command
from vaka.hooks.transcript import Transcripts
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.sandbox.sensitive import drop_secrets

if TYPE_CHECKING:
    from vaka.project.hook_sources import ComponentUse


def start_hooks(
    options: Options, env: Env, models: ModelRegistry, use: "ComponentUse | None"
) -> tuple[HookEngine, tuple[Middleware, ...]]:
    """Return the engine that runs the hooks of the options and of components in use, and its middleware."""
    cwd = str(Path(options.workspace.folder or ".").absolute())
    transcripts = Transcripts(options.project.transcript_folder, cwd)
    run = run_command
    if "hooks" in options.commands.sandboxed:
        from vaka.runtime.sandboxed_programs import sandboxed_hooks

        run = sandboxed_hooks(lambda: env.world, str(transcripts.folder))
    remote = {"CLAUDE_CODE_REMOTE": "true"} if options.environment.entry_point == "platform" else {}
    settings = HookSettings(
        cwd=cwd,
        find_model=models.find,
        middleware=tuple(options.project.hook_middleware),
        failure=options.project.hook_failure,
        environ=lambda: {**drop_secrets(os.environ, options.commands.env), **remote},
        run_command=run,
        component_events=use.events if use else frozenset(),
        component_hooks=use.active_hooks if use else None,
        permission_mode=lambda: str(getattr(env.policy, "mode", "default")),
    )
    engine = HookEngine(tuple(options.project.hooks), settings, transcripts)
    return engine, (*make_middleware(engine), *(() if use is None else (use,)))
