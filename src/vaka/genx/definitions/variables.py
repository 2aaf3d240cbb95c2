"""Variables of the environment in texts of definitions: ``${NAME}``, and ``${NAME:-text}`` with a default."""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from vaka.core.types.errors import ConfigError
from vaka.genx.prompt_layers import EnvironmentText, MixedText, TextLayer, join_layers

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_]\w*)(?::-([^{}]*))?\}")
"""``$${`` is ``${`` itself; any other ``${`` stays as it is."""


def find_variables(text: str) -> list[str]:
    """Return the names of the variables that a text of a definition has."""
    return [found[2] for found in _REFERENCE.finditer(text) if found[2]]


def unescape_text(text: str) -> str:
    """Return a text without variables as it is used: ``$${`` is ``${``."""
    return _REFERENCE.sub(lambda found: "${" if found[1] else found[0], text)


class DefinitionVariables:
    """The variables that the definitions of a folder may read. Raises ``ConfigError`` for others."""

    def __init__(self, variables: Mapping[str, str], *, trusted: bool, note: Callable[[str], object]) -> None:
        """``note`` is called with what a person should know about variables that have no value."""
        self._variables = variables
        self._trusted = trusted
        self._note = note

    def require(self, name: str, where: str) -> None:
        """Raise ``ConfigError`` if definitions may read no variables; note a variable that they may not read."""
        if self._is_missing(name, where):
            self._note(_missing_message(name, where))

    def layer_of(self, text: str, where: str) -> TextLayer:
        """Return a text of a prompt; the values are read at the start of each turn, and known secrets redacted."""
        parts: list[str | EnvironmentText] = []
        at = 0
        for found in _REFERENCE.finditer(text):
            name: str | None = found[2]
            parts += (text[at : found.start()], self._value_of(name, found[3], where) if name else "${")
            at = found.end()
        return MixedText((*parts, text[at:])) if parts else text

    def expand(self, text: str, where: str) -> str:
        """Return a text with the values of its variables."""
        return join_layers([self.layer_of(text, where)], self._variables) if _REFERENCE.search(text) else text

    def expand_all(self, value: Any, where: str) -> Any:
        """Return a value with the variables of all its texts replaced."""
        if isinstance(value, str):
            return self.expand(value, where)
        if isinstance(value, dict):
            return {key: self.expand_all(inner, where) for key, inner in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.expand_all(inner, where) for inner in cast("tuple[Any, ...]", value)]
        return value

    def _value_of(self, name: str, default: str | None, where: str) -> EnvironmentText:
        if self._is_missing(name, where) and default is None:
            raise ConfigError(f"{_missing_message(name, where)}; $${{{name}}} writes ${{{name}}} itself")
        return EnvironmentText(name, default or "")

    def _is_missing(self, name: str, where: str) -> bool:
        if not self._trusted:
            raise ConfigError(
                f"{where} reads the variable {name} of the environment, which only a trusted folder may do; "
                f"`vaka trust` trusts it, and load_agents(trusted=True) in Python"
            )
        return name not in self._variables


def _missing_message(name: str, where: str) -> str:
    return (
        f"{where} reads the variable {name}, which is not set or which definitions may not read; "
        f"name it with --env {name} or in the setting script_env"
    )
