"""Middleware of a feature for every agent of a runtime."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from vaka.core.loop.middleware import Middleware
from vaka.core.ports.feature_middleware import MiddlewareServices


class OwnedByRuntime:
    """What a runtime does with its part of a feature."""

    def replace(self, value: object) -> None:
        """Take a value of the option that has changed. Raises ``ConfigError``."""

    def secrets(self) -> Iterable[str]:
        """Return the secrets in the value of the option, for redaction."""
        return ()

    async def close(self) -> None:
        """Free what it holds; called once, when the runtime is closed."""


class FeatureMiddleware(OwnedByRuntime, Middleware):
    """Middleware that an option of the runtime switches on. It gets the value of the option, and checks it itself."""


FeatureMiddlewareFactory: TypeAlias = Callable[[object, MiddlewareServices], FeatureMiddleware]
"""Makes middleware from the value of an option. Raises ``ConfigError`` for a value that is not usable."""
