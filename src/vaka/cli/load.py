"""Tools and agents out of Python files and Luau scripts. What is wrong with a file is told with file and line."""

import copy
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, cast

import msgspec

from vaka.agents.react import Agent, ToolLike, name_of
from vaka.cli.options import given_path
from vaka.config.layers import Settings
from vaka.core.ports.tool import Lendable, Tool
from vaka.core.types.errors import ConfigError, InvalidInput, ScriptError
from vaka.core.types.tool import ToolSpec
from vaka.runtime import registry
from vaka.tools.function import FunctionTool
from vaka.tools.toolset import Toolset

LIMITS = {"max_steps": "max_steps", "timeout": "timeout", "max_budget_usd": "max_cost", "max_tokens": "max_tokens"}
"""Settings, and the limits of an agent they set."""
SCRIPT = ".luau"
LOCAL = "local"
"""The model that comes with vaka: too small to choose between many tools, so it gets none that nobody names."""

_LUAU_TOOL, _LUAU_AGENT = "vaka.luau.tool:LuauTool", "vaka.runtime.scripts:LuauAgent"


def load_tools(files: Iterable[str]) -> list[ToolLike]:
    """Return every tool at the top level of Python files, and each Luau script as a tool, in order."""
    found: list[ToolLike] = []
    names: dict[str, str] = {}
    for file in files:
        mine = [tool for tool in _tools_of(file) if tool not in found]
        for tool in mine:
            if tool.spec.name in names:
                raise ConfigError(f"{names[tool.spec.name]}, {file}: two tools are named {tool.spec.name!r}")
            names[tool.spec.name] = file
        found.extend(mine)
    return found


def load_agent(
    text: str | None, tools: Sequence[ToolLike], settings: Settings, instructions: str | None = None
) -> Agent:
    """Return the agent a name, ``FILE.py[:OBJECT]`` or ``FILE.luau`` stands for, with what the command line adds."""
    agent = copy.copy(_agent_of(text or "assistant"))
    limits = {LIMITS[name]: settings[name] for name in LIMITS if settings[name] is not None}
    flag = settings.values["model"]
    agent.model = flag.value if flag.layer == "flag" else agent.model
    agent.instructions = agent.instructions if instructions is None else instructions
    agent.tools = (*_offered(text or "", tools, agent, settings), *agent.tools, *tools)
    agent.limits = msgspec.structs.replace(agent.limits, **limits)
    return agent


def _offered(text: str, tools: Sequence[ToolLike], agent: Agent, settings: Settings) -> tuple[str, ...]:
    """Return vaka's own tools that the agent gets: those that are named, or all where nobody brings any."""
    said = settings.values["builtin_tools"]
    if said.layer == "default":
        model = str(agent.model or settings["model"])
        own = tools or ".py" in text or text.endswith(SCRIPT)
        names: tuple[str, ...] = () if own or model.partition("/")[0] == LOCAL else ("all",)
    else:
        names = tuple(name for value in said.value for name in value.split(",") if name.strip().lower() != "none")
    taken = {name_of(tool) for tool in (*agent.tools, *tools)}
    chosen: tuple[str, ...] = registry.load(registry.CHOOSE_TOOLS)(names) if names else ()
    return tuple(name for name in chosen if name not in taken)


def libs_of(script: Path) -> tuple[Path, ...]:
    """Return where a script looks for what it requires unless it is told: in ``../libs``, if there is such a folder."""
    folder = script.resolve().parent.parent / "libs"
    return (folder,) if folder.is_dir() else ()


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


def _agent_of(text: str) -> Agent:
    if text.endswith(SCRIPT):
        made: Agent = _scripted(_LUAU_AGENT, text, given_path(text).stem)
        return made
    return _from_file(text) if ".py" in text else Agent(text)


def _tools_of(file: str) -> "Sequence[Tool | Lendable]":
    if file.endswith(SCRIPT):
        return [_scripted(_LUAU_TOOL, file)]
    tools = _tools(load_module(file))
    if not tools:
        raise ConfigError(f"{file}: no tools; mark functions with @vaka.tool")
    return tools


def _scripted(kind: str, file: str, *names: str) -> Any:
    """Make what is a script: it is read and compiled now, so that what is wrong is said before anything runs."""
    path = given_path(file)
    if not path.is_file():
        raise ConfigError(f"{file}: there is no such file")
    try:
        return registry.load(kind)(*names, path, libs=libs_of(path))
    except ScriptError as error:
        raise ConfigError(str(error)) from error
    except InvalidInput as error:
        raise ConfigError(f"{file}: {error}") from error


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


def _tools(module: ModuleType) -> "list[Tool | Lendable]":
    tools: list[Tool | Lendable] = []
    for value in vars(module).values():
        things: list[Any] = [*value.values()] if isinstance(value, Toolset) else [value]
        tools += [_seen(thing) for thing in things if _is_tool(thing) and thing not in tools]
    return tools


def _is_tool(thing: Any) -> bool:
    """Whether it is a tool, or a script that will be one; a class of such things is none."""
    if isinstance(thing, FunctionTool):
        return True
    return callable(getattr(thing, "bind", None)) and isinstance(getattr(thing, "spec", None), ToolSpec)


def _seen(tool: Any) -> "Tool | Lendable":
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
