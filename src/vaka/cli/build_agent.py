"""Build the agent of a command line: tools and agents from Python and Luau files, limits, model options, output schema."""

import copy
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, cast

import msgspec

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.cli.errors import UsageError
from vaka.cli.options import expand_path
from vaka.config.settings import Settings
from vaka.core.ports.tool import BindableTool, Tool
from vaka.core.types.errors import BadRequest, ConfigError, InvalidInput, ScriptError
from vaka.core.types.tool import ToolSpec
from vaka.models.options import read_options
from vaka.runtime import lazy
from vaka.runtime.agent_builder import output_schema_of
from vaka.runtime.structured_output import OutputSchema
from vaka.tools.function import FunctionTool
from vaka.tools.toolset import Toolset

LIMIT_SETTINGS = {
    "max_steps": "max_steps",
    "timeout": "timeout",
    "max_budget_usd": "max_cost",
    "max_tokens": "max_tokens",
}
"""Settings, and the limits of an agent they set."""

SCRIPT_SUFFIX = ".luau"

LOCAL_MODEL = "local"
"""The model that comes with vaka: too small to choose between many tools, so it gets none that nobody names."""

_LUAU_TOOL, _LUAU_AGENT = "vaka.luau.tool:LuauTool", "vaka.runtime.scripts:LuauAgent"


def load_tools(files: Iterable[str]) -> list[ToolLike]:
    """Return every tool at the top level of Python files, and each Luau script as a tool, in order."""
    found: list[ToolLike] = []
    names: dict[str, str] = {}
    for file in files:
        mine = [tool for tool in _load_tool_file(file) if tool not in found]
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
    agent = copy.copy(_resolve_agent(text or "assistant"))
    limits = {LIMIT_SETTINGS[name]: settings[name] for name in LIMIT_SETTINGS if settings[name] is not None}
    flag = settings.values["model"]
    agent.model = flag.value if flag.layer == "flag" else agent.model
    agent.instructions = agent.instructions if instructions is None else instructions
    agent.tools = (*_select_builtin_tools(text or "", tools, agent, settings), *agent.tools, *tools)
    agent.limits = msgspec.structs.replace(agent.limits, **limits)
    return agent


def _select_builtin_tools(text: str, tools: Sequence[ToolLike], agent: Agent, settings: Settings) -> tuple[str, ...]:
    """Return vaka's own tools that the agent gets: those that are named, or all where nobody brings any."""
    said = settings.values["builtin_tools"]
    if said.layer == "default":
        model = str(agent.model or settings["model"])
        own = tools or ".py" in text or text.endswith(SCRIPT_SUFFIX)
        names: tuple[str, ...] = () if own or model.partition("/")[0] == LOCAL_MODEL else ("all",)
    else:
        names = tuple(name for value in said.value for name in value.split(",") if name.strip().lower() != "none")
    taken = {tool_name_of(tool) for tool in (*agent.tools, *tools)}
    chosen: tuple[str, ...] = lazy.load(lazy.CHOOSE_TOOLS)(names) if names else ()
    return tuple(name for name in chosen if name not in taken)


def library_folders_of(script: Path) -> tuple[Path, ...]:
    """Return where a script looks for what it requires unless it is told: in ``../libs``, if there is such a folder."""
    folder = script.resolve().parent.parent / "libs"
    return (folder,) if folder.is_dir() else ()


def load_module(name: str) -> ModuleType:
    """Run a Python file and return it as a module; its folder can be imported from."""
    path = expand_path(name).resolve()
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
    with _ConfigErrorBoundary(path, spec.name):
        spec.loader.exec_module(module)
    return module


class _ConfigErrorBoundary:
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
            raise ConfigError(
                f"{_error_location(error, self.path)}: {type(error).__name__}: {_error_message(error)}"
            ) from error


def _resolve_agent(text: str) -> Agent:
    if text.endswith(SCRIPT_SUFFIX):
        made: Agent = _load_script(_LUAU_AGENT, text, expand_path(text).stem)
        return made
    return _load_agent_file(text) if ".py" in text else Agent(text)


def _load_tool_file(file: str) -> "Sequence[Tool | BindableTool]":
    if file.endswith(SCRIPT_SUFFIX):
        return [_load_script(_LUAU_TOOL, file)]
    tools = _find_tools(load_module(file))
    if not tools:
        raise ConfigError(f"{file}: no tools; mark functions with @vaka.tool")
    return tools


def _load_script(kind: str, file: str, *names: str) -> Any:
    """Make what is a script: it is read and compiled now, so that what is wrong is said before anything runs."""
    path = expand_path(file)
    if not path.is_file():
        raise ConfigError(f"{file}: there is no such file")
    try:
        return lazy.load(kind)(*names, path, libs=library_folders_of(path))
    except ScriptError as error:
        raise ConfigError(str(error)) from error
    except InvalidInput as error:
        raise ConfigError(f"{file}: {error}") from error


def _load_agent_file(text: str) -> Agent:
    name, colon, wanted = text.rpartition(":")
    if not colon or not name.endswith(".py"):
        name, wanted = text, ""
    module = load_module(name)
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if wanted:
        if wanted not in agents:
            raise ConfigError(f"{name}: no vaka.Agent named {wanted!r}; it has {_join_names(agents)}")
        return agents[wanted]
    if "agent" in agents:
        return agents["agent"]
    if len(set(agents.values())) != 1:
        raise ConfigError(f"{name}: which vaka.Agent? it has {_join_names(agents)}; write {name}:OBJECT")
    return next(iter(agents.values()))


def _find_tools(module: ModuleType) -> "list[Tool | BindableTool]":
    tools: list[Tool | BindableTool] = []
    for value in vars(module).values():
        things: list[Any] = [*value.values()] if isinstance(value, Toolset) else [value]
        tools += [_check_spec(thing) for thing in things if _is_tool(thing) and thing not in tools]
    return tools


def _is_tool(thing: Any) -> bool:
    """Whether it is a tool, or a script that will be one; a class of such things is none."""
    if isinstance(thing, FunctionTool):
        return True
    return callable(getattr(thing, "bind", None)) and isinstance(getattr(thing, "spec", None), ToolSpec)


def _check_spec(tool: Any) -> "Tool | BindableTool":
    """Work the schema out now, so that what is wrong is said before anything runs."""
    try:
        tool.spec  # noqa: B018  # asked for what it raises
    except InvalidInput as error:
        code = getattr(inspect.unwrap(tool.function), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else tool.name
        raise ConfigError(f"{where}: {error}") from error
    return cast("Tool", tool)


def _error_location(error: BaseException, path: Path) -> str:
    """Return ``file:line``: of the syntax error, or of the last line of the file that was running."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f"{path}:{frames[-1].lineno}" if frames else str(path)


def _error_message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _join_names(names: Sequence[str] | dict[str, Agent]) -> str:
    return ", ".join(names) or "none"


MAX_SCHEMA_BYTES = 1024 * 1024
"""Bytes the file of a schema may have."""


def apply_model_flags(
    agent: Agent, options: Iterable[str], tool_choice: str | None, schema: str | None
) -> OutputSchema | None:
    """Put on an agent what is asked of its model; return the shape its answers are to have, if one is given."""
    agent.options = {**agent.options, **parse_model_options(options)}
    agent.tool_choice = tool_choice or agent.tool_choice
    if not schema:
        return output_schema_of(agent)
    if "output" in agent.options:
        raise UsageError("--output-schema and --option output=… say the same; leave one of them out")
    shape = load_output_schema(schema)
    agent.options, agent.output = {**agent.options, **shape.options}, None
    return shape


def parse_model_options(texts: Iterable[str]) -> dict[str, Any]:
    """Return what ``KEY=VALUE`` say: a value is JSON where that fits, else a text. Raises ``UsageError``."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--option {text}: expected KEY=VALUE, such as reasoning=high or temperature=0")
        if name in options:
            several = '; several texts are stop=["a", "b"]' if name == "stop" else ""
            raise UsageError(f"--option {name} is given twice; leave one of them out{several}")
        options[name] = _parse_option_value(name, value)
    return options


def load_output_schema(file: str) -> OutputSchema:
    """Return the shape a file with a JSON Schema describes. Raises ``UsageError``."""
    path = expand_path(file)
    try:
        schema = msgspec.json.decode(_read_limited(path), type=dict[str, Any])
        shape = OutputSchema(schema)
    except OSError as error:
        raise UsageError(f"--output-schema {file}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"--output-schema {file}: expected a JSON Schema: {error}") from error
    except InvalidInput as error:
        raise UsageError(f"--output-schema {file}: {error}") from error
    shape.name = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:64] or "answer"
    return shape


def _read_limited(path: Path) -> bytes:
    """Return what a file holds, unless that has no end."""
    with path.open("rb") as file:
        data = file.read(MAX_SCHEMA_BYTES + 1)
    if len(data) > MAX_SCHEMA_BYTES:
        raise InvalidInput(f"larger than the {MAX_SCHEMA_BYTES} bytes a schema may have")
    return data


def _parse_option_value(name: str, text: str) -> Any:
    """Return the first reading of a text that the option takes."""
    readings: list[Any] = [text]
    try:
        readings.insert(0, msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        pass
    fault: BadRequest | None = None
    for reading in readings:
        try:
            read_options({name: reading}).output_format  # noqa: B018  # asked for what it raises
        except BadRequest as error:
            fault = fault or error
        else:
            return reading
    raise UsageError(f"--option {name}={text}: {fault}")
