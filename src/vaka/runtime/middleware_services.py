"""What the middleware of features gets from a runtime. Imported when an option switches such middleware on."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from vaka.core.loop.feature_middleware import FeatureMiddleware
from vaka.core.ports.agent import ToolArgumentParser
from vaka.core.ports.env import Env
from vaka.core.ports.sandbox import Process
from vaka.core.ports.store import Store
from vaka.feature import require_feature
from vaka.runtime.options import Options
from vaka.runtime.sandboxed_programs import start_in_sandbox
from vaka.runtime.stored_keys import StoredKeys, stored_keys_of
from vaka.sandbox.sensitive import is_secret, scrub_environment
from vaka.tools.arguments import ArgumentReader
from vaka.tools.validate import Validator


def make_feature_middleware(name: str, option: str, value: object, services: "RuntimeServices") -> FeatureMiddleware:
    """Return the middleware of the feature that an option switches on. Raises ``ConfigError`` without its folder."""
    feature = require_feature(name, option)
    assert feature.load_middleware is not None  # noqa: S101  # the option belongs to the feature
    return feature.load(feature.load_middleware)(value, services)


class RuntimeServices:
    """Implements ``MiddlewareServices``."""

    def __init__(self, options: Options, store: Store, env: Env, add_secret: Callable[[str], None]) -> None:
        self._options, self._env = options, env
        self.values = store.values
        self.folder = options.workspace.folder
        self.add_secret = add_secret

    @property
    def program_environment(self) -> dict[str, str]:
        return scrub_environment(os.environ, self._options.commands.env)

    def uses_sandbox(self, programs: str) -> bool:
        return programs in self._options.commands.sandboxed

    async def start_in_sandbox(self, argv: tuple[str, ...], cwd: str, *, env: Mapping[str, str]) -> Process:
        return await start_in_sandbox(self._env.world, argv, cwd, env=env, stdin="pipe")

    def open_keys(self, folder: str, command: str) -> StoredKeys:
        return open_keys(folder, command)

    def is_secret(self, name: str, value: str) -> bool:
        return is_secret(name, value)

    def argument_parser(self, schema: dict[str, Any]) -> ToolArgumentParser:
        return ArgumentReader(schema).read

    def check_schema(self, schema: dict[str, Any]) -> None:
        Validator(schema).compile()


def open_keys(folder: str, command: str) -> StoredKeys:
    """Return the secrets of the user that ``command`` has stored, in a folder beside the keys of model providers."""
    return StoredKeys(stored_keys_of(os.environ).folder / folder, command)
