"""Tools and agents out of Python files. What is wrong with a file is told with file and line."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, cast

import msgspec

from vaka.agents.react import Agent
from vaka.cli.options import given_path
from vaka.config.layers import Settings
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.tools.function import FunctionTool
from vaka.tools.toolset import Toolset

LIMITS = {"max_steps": "max_steps", "timeout": "timeout", "max_budget_usd": "max_cost", "max_tokens": "max_tokens"}
"""Settings, and the limits of an agent they set."""


def load_tools(files: Iterable[str]) -> Toolset:
    """Return every tool at the top level of these files, in order."""
    found: list[Tool] = []
    for name in files:
        mine = [tool for tool in _tools(load_module(name)) if tool not in found]
        if not mine:
            raise ConfigError(f"{name}: no tools; mark functions with @vaka.tool")
        found.extend(mine)
    try:
        return Toolset(found)
    except InvalidInput as error:
        raise ConfigError(f"{', '.join(files)}: {error}") from error


def load_agent(text: str | None, tools: Toolset, settings: Settings, instructions: str | None = None) -> Agent:
    """Return the agent a name or ``FILE.py[:OBJECT]`` stands for, with what the command line adds to it."""
    agent = _from_file(text) if text and ".py" in text else Agent(text or "assistant")
    limits = {LIMITS[name]: settings[name] for name in LIMITS if settings[name] is not None}
    flag = settings.values["model"]
    return Agent(
        agent.name,
        model=flag.value if flag.layer == "flag" else agent.model,
        instructions=agent.instructions if instructions is None else instructions,
        tools=[*agent.tools, *tools.values()],
        middleware=agent.middleware, limits=msgspec.structs.replace(agent.limits, **limits),
        description=agent.description, tool_choice=agent.tool_choice, options=agent.options,
    )  # fmt: skip


def load_module(name: str) -> ModuleType:
    """Run a Python file and return it as a module; its folder can be imported from."""
    path = given_path(name).resolve()
    if not path.is_file():
        raise ConfigError(f"{name}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"vaka_file_{path.stem}_{abs(hash(path)):x}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{name}: not a Python file; its name must end in .py")
    if spec.name in sys.modules:
        return sys.modules[spec.name]
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with _Blamed(path, spec.name):
        spec.loader.exec_module(module)
    return module


class _Blamed:
    """Whatever somebody's file raises while it runs becomes a ``ConfigError`` that names the line."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.modules.pop(self.name, None)
        if isinstance(error, Exception | SystemExit):
            raise ConfigError(f"{_place(error, self.path)}: {type(error).__name__}: {_words(error)}") from error


def _from_file(text: str) -> Agent:
    name, colon, wanted = text.rpartition(":")
    if not colon or not name.endswith(".py"):
        name, wanted = text, ""
    module = load_module(name)
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if wanted:
        if wanted not in agents:
            raise ConfigError(f"{name}: no vaka.Agent named {wanted!r}; it has {_listed(agents)}")
        return agents[wanted]
    if "agent" in agents:
        return agents["agent"]
    if len(set(agents.values())) != 1:
        raise ConfigError(f"{name}: which vaka.Agent? it has {_listed(agents)}; write {name}:OBJECT")
    return next(iter(agents.values()))


def _tools(module: ModuleType) -> list[Tool]:
    tools: list[Tool] = []
    for value in vars(module).values():
        things: list[Any] = [*value.values()] if isinstance(value, Toolset) else [value]
        tools += [_seen(thing) for thing in things if isinstance(thing, FunctionTool) and thing not in tools]
    return tools


def _seen(tool: Any) -> Tool:
    """Work the schema out now, so that what is wrong is said before anything runs."""
    try:
        tool.spec  # noqa: B018  # asked for what it raises
    except InvalidInput as error:
        code = getattr(inspect.unwrap(tool.function), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else tool.name
        raise ConfigError(f"{where}: {error}") from error
    return cast("Tool", tool)


def _place(error: BaseException, path: Path) -> str:
    """Return ``file:line``: of the syntax error, or of the last line of the file that was running."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f"{path}:{frames[-1].lineno}" if frames else str(path)


def _words(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _listed(names: Sequence[str] | dict[str, Agent]) -> str:
    return ", ".join(names) or "none"
