"""Run the hooks of an event as a session would."""

from collections.abc import Mapping
from typing import Any

from vaka.cli.kit.bootstrap import config_context, model_options, world_options
from vaka.config.hook_definition import Hook
from vaka.config.settings import Settings
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolCall
from vaka.core.types.traits import find_builtin_traits
from vaka.hooks.decision import HookDecision
from vaka.hooks.payload import call_fields
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of
from vaka.runtime.options import Project
from vaka.runtime.runtime import Runtime
from vaka.runtime.start_hooks import start_hooks


async def fire_hooks(
    settings: Settings, found: tuple[Hook, ...], event: str, fields: Mapping[str, Any], call: ToolCall | None
) -> HookDecision:
    """Run the hooks of an event and return their merged decision; ``fields`` are added to the fields of the call."""
    if call is not None:
        fields = call_fields(call, str(config_context().cwd), find_builtin_traits(call.name)) | dict(fields)
    policy = LayeredPolicy((), cwd=str(config_context().cwd))

    def covers(rule: str) -> bool:
        return call is not None and policy.covers(rule, call, spec_of(call.name))

    given = {**model_options(settings, quiet=True), **world_options(settings)}
    async with Runtime(project=Project(hooks=found), **given) as runtime:
        engine, _ = start_hooks(runtime.options, runtime.env, runtime.models, None)
        decision = await engine.fire(event, fields, session=SessionId("test"), covers=covers)
        await engine.close()
    return decision
