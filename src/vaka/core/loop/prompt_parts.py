"""The tool menu and the system prompt of an agent: what did not change since the last prompt is the same object."""

from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any

import msgspec

from vaka.core.loop.blobs import DigestedText
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import ToolChoice, ToolSpec


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tool choice, the provider options and the number of messages of every prompt."""

    tool_choice: ToolChoice = "auto"
    options: Mapping[str, Any] = {}
    recent: int | None = None
    """The most messages of the conversation in a prompt; ``None`` for all."""

    def tool_choice_after(self, tools: Mapping[str, int]) -> ToolChoice:
        """Return the choice after the calls that ``tools`` counts: a required call is required until one was made."""
        return self.tool_choice if self.tool_choice == "none" or not tools else "auto"


def tools_by_name(agent: str, given: Iterable[Tool]) -> dict[str, Tool]:
    """Return tools by their names. Raises ``InvalidInput`` when two have one name."""
    tools: dict[str, Tool] = {}
    for tool in given:
        if tool.spec.name in tools:
            raise InvalidInput(f"agent {agent!r} has two tools named {tool.spec.name!r}")
        tools[tool.spec.name] = tool
    return tools


class ToolMenu:
    """The tools that a prompt offers to the model, and the digested text of that list."""

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs
        self.digested_text = DigestedText(msgspec.json.encode(specs).decode())


class PromptParts:
    """Keeps the last tool menu and system prompt of an agent, and makes them again only from changed parts."""

    def __init__(self) -> None:
        self._menu: tuple[Policy, Mapping[str, Tool], ToolMenu] | None = None
        self._sent_menu: ToolMenu | None = None
        self._system: tuple[DigestedText, str, DigestedText] | None = None

    def tool_menu(self, policy: Policy, tools: Mapping[str, Tool]) -> ToolMenu:
        """Return those of ``tools`` that are visible under ``policy``."""
        known = self._menu
        if known is None or known[0] is not policy or (known[1] is not tools and known[1] != tools):
            specs = tuple(tool.spec for tool in tools.values() if policy.visible(tool.spec))
            known = (policy, tools, ToolMenu(specs))
        self._menu = (policy, tools, known[2])  # equal tools are found the next time without a comparison of each
        return known[2]

    def sent_menu(self, specs: tuple[ToolSpec, ...]) -> ToolMenu:
        """Return the menu of a prompt in which a middleware has replaced the tools."""
        known = self._sent_menu
        if known is None or len(known.specs) != len(specs) or not all(map(is_, known.specs, specs)):
            known = self._sent_menu = ToolMenu(specs)
        return known

    def system(self, instructions: DigestedText, text: str) -> DigestedText:
        """Return the system prompt: the instructions, followed by a text."""
        known = self._system
        if known is None or known[0] is not instructions or known[1] != text:
            joined = DigestedText("\n\n".join(part for part in (instructions.text, text) if part))
            known = self._system = (instructions, text, joined)
        return known[2]
