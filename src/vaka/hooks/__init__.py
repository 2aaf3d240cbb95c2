"""Shell hooks: commands of the user that run at fixed points of a session and may decide about what happens there."""

from vaka.config.hook_definition import EVENTS as EVENTS
from vaka.config.hook_definition import Hook as Hook
from vaka.config.hook_definition import parse_hooks as parse_hooks
from vaka.hooks.engine import HookEngine as HookEngine
from vaka.hooks.engine import HookSettings as HookSettings
from vaka.hooks.middleware import make_middleware as make_middleware

__all__ = ["EVENTS", "Hook", "HookEngine", "HookSettings", "make_middleware", "parse_hooks"]
