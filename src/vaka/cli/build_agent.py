"""Build the agent of a command line: tools and agents of Python and Luau files, limits, options, output schema."""

import copy
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

import vaka.tools
from vaka.agents.coding_prompt import coding_instructions
from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.options import expand_path
from vaka.cli.kit.stdout import reserve_stdout
from vaka.config.settings import Settings, settings_folder, trust_root_of
from vaka.core.ports.agent import AgentKind, BindableTool
from vaka.core.ports.tool import Tool
from vaka.core.types.errors import BadRequest, ConfigError, InvalidInput, ScriptError
from vaka.core.types.limits import Limits
from vaka.core.types.tool import ToolSpec
from vaka.runtime.agent_builder import output_schema_of
from vaka.tools.builtin import select_tools

if TYPE_CHECKING:
    from vaka.runtime.structured_output import OutputSchema

DEFAULT_AGENT = "assistant"
"""The agent of a command that names none."""
SCRIPT_SUFFIX = ".luau"
LOCAL_MODEL = "local"
"""The model on this machine: too small to choose between many tools, so it gets only tools that are named."""
MAX_SCHEMA_BYTES = 1024 * 1024

T = TypeVar("T")
TrustOfScript: TypeAlias = Callable[[Path], bool]
"""Returns whether a script is trusted."""


class MissingModel(ConfigError):
    """Neither the agent nor the settings name a model."""


def missing_model_message() -> str:
    """Return how to choose a model: the local model, or a model of a provider with a key."""
    from vaka.models.local.model import missing_install_command

    install = missing_install_command()
    local = f" (install it with: {install})" if install else ""
    return (
        "no model; give one with --model, as VAKA_MODEL, or with `vaka config set model NAME`: local runs on this "
        f"machine and needs no key{local}; for another store a key first, as with `vaka login anthropic`, and "
        "`vaka models list` shows what there is"
    )


def load_tools(files: Iterable[str], settings: Settings, *, untrusted: bool = False) -> list[ToolLike]:
    """Return every tool at the top level of Python files, and each Luau script as a tool, in order."""
    trust = _trust_of_scripts(settings, untrusted=untrusted)
    tools: list[ToolLike] = []
    file_of: dict[str, str] = {}
    for file in files:
        added = [tool for tool in _load_tool_file(file, trust) if tool not in tools]
        for tool in added:
            if tool.spec.name in file_of:
                raise ConfigError(f"{file_of[tool.spec.name]}, {file}: two tools are named {tool.spec.name!r}")
            file_of[tool.spec.name] = file
        tools.extend(added)
    return tools


def load_agent(
    text: str | None,
    tools: Sequence[ToolLike],
    settings: Settings,
    instructions: str | None = None,
    *,
    untrusted: bool = False,
    keep_model: bool = False,
) -> Agent:
    """Return the agent of a name, ``FILE.py[:OBJECT]`` or ``FILE.luau``, with the tools and limits of the flags.

    The flag ``--model`` replaces the model of the agent, or with ``keep_model`` counts only for an agent without one.
    """
    text = None if is_default_agent(text, settings) else text
    agent = copy.copy(_resolve_agent(text, tools, settings, _trust_of_scripts(settings, untrusted=untrusted)))
    limits = {field: value for field, value in settings.fields_of(Limits).items() if value is not None}
    flag = settings.values["model"]
    if flag.layer == "flag" and (agent.model is None or not keep_model):
        agent.model = flag.value
    agent.instructions = agent.instructions if instructions is None else instructions
    own = {tool_name_of(tool) for tool in agent.tools}
    builtin, tools = (
        _select_builtin_tools(text, tools, agent, settings),
        [t for t in tools if tool_name_of(t) not in own],
    )
    added, agent.tools = (*builtin, *tools), (*builtin, *agent.tools, *tools)
    if agent.origin is None and any(hasattr(each, "bind") for each in (agent, *agent.tools)):
        from vaka.cli.project_agents import ProjectOrigin

        agent.origin = ProjectOrigin(settings, tools)
    if (limit_tools := getattr(agent, "limit_tools", None)) is not None:
        limit_tools(added)
    agent.limits = msgspec.structs.replace(agent.limits, **limits)
    return agent


def load_agent_of_flags(flags: Mapping[str, Any], settings: Settings, *, keep_model: bool = False) -> Agent:
    """Return the agent that flags describe; with ``keep_model`` ``--model`` is only for agents that set none.

    Raises ``MissingModel`` when the agent has no model and a turn needs one.
    """
    untrusted = bool(flags["untrusted"])
    tools = load_tools(flags["tools"], settings, untrusted=untrusted)
    instructions = _read_text_flag(flags, "instructions")
    agent = load_agent(flags["agent"], tools, settings, instructions, untrusted=untrusted, keep_model=keep_model)
    _apply_system_prompt(agent, flags, is_default=is_default_agent(flags["agent"], settings))
    needs_model = not isinstance(agent, AgentKind) or agent.needs_model
    if agent.model is None and needs_model and not settings["model"] and not flags.get("resume"):
        raise MissingModel(missing_model_message())
    return agent


def is_default_agent(name: str | None, settings: Settings) -> bool:
    """Return whether a name means the built-in agent; an agent of the project with this name has precedence."""
    if name is None:
        return True
    from vaka.cli.project_agents import project_agent_names

    return name == DEFAULT_AGENT and name not in project_agent_names(settings)


def _apply_system_prompt(agent: Agent, flags: Mapping[str, Any], *, is_default: bool) -> None:
    """Give the coding agent its base prompt, and any agent the prompts of the flags."""
    replaced, appended = _read_text_flag(flags, "system_prompt"), _read_text_flag(flags, "append_system_prompt") or ""
    if flags["no_base_prompt"] and replaced is not None:
        raise UsageError("--no-base-prompt and --system-prompt both replace the base prompt; leave one of them out")
    own = agent.instructions
    read_prompt: Callable[[], str] | None = getattr(agent, "read_prompt", None)  # of an agent of .claude/agents
    if read_prompt is not None and flags["no_base_prompt"]:
        replaced = read_prompt()
    if (
        isinstance(own, str)
        and not flags["no_base_prompt"]
        and (read_prompt is not None or (is_default and _has_builtin_tools(agent)))
    ):
        added = "\n\n".join(part for part in (own, appended) if part)
        base = read_prompt if replaced is None else replaced
        agent.instructions = coding_instructions(settings_folder(), base=base, instructions=added)
    elif replaced is not None:
        agent.instructions = "\n\n".join(part for part in (replaced, appended) if part)
    elif appended and isinstance(own, str):
        agent.instructions = "\n\n".join(part for part in (own, appended) if part)
    elif appended:
        raise UsageError("--append-system-prompt: the instructions of this agent are a function; add the text there")


def _has_builtin_tools(agent: Agent) -> bool:
    return any(isinstance(tool, str) for tool in agent.tools)


def _read_text_flag(flags: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a flag that takes ``TEXT|@FILE``."""
    text: str | None = flags[name]
    if text is None or not text.startswith("@"):
        return text
    try:
        return expand_path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--{name.replace('_', '-')} {text}: {error}") from error


def _select_builtin_tools(
    text: str | None, tools: Sequence[ToolLike], agent: Agent, settings: Settings
) -> tuple[str, ...]:
    """Return the built-in tools to add to the agent: the named ones; by default all, if it is the default agent."""
    setting = settings.values["builtin_tools"]
    if setting.layer == "default":
        model = str(agent.model or settings["model"])
        names: tuple[str, ...] = () if text or tools or model.partition("/")[0] == LOCAL_MODEL else ("all",)
    else:
        names = built_in_names_of(setting.value)
    taken = {tool_name_of(tool) for tool in (*agent.tools, *tools)}
    return tuple(name for name in (select_tools(names) if names else ()) if name not in taken)


def built_in_names_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the texts of ``--builtin-tools``, each of which may have several with commas between."""
    return tuple(name for text in texts for name in text.split(",") if name.strip().lower() != "none")


def library_folders_of(script: Path) -> tuple[Path, ...]:
    """Return the default search path of a script's ``require``: ``../libs``, if that folder exists."""
    folder = script.resolve().parent.parent / "libs"
    return (folder,) if folder.is_dir() else ()


def is_project_script(script: Path, folders: Iterable[str] = ()) -> bool:
    """Return whether a script is in the repository of the working folder, or in one of ``folders``."""
    own = [trust_root_of(settings_folder()), *(Path(folder).expanduser().resolve() for folder in folders)]
    return any(script.resolve().is_relative_to(folder) for folder in own)


def _trust_of_scripts(settings: Settings, *, untrusted: bool) -> TrustOfScript:
    """Return the function that trusts the scripts of the project, or none."""
    return lambda script: not untrusted and is_project_script(script, settings["add_dir"])


def load_module(name: str) -> ModuleType:
    """Run a Python file and return it as a module; its folder is added to ``sys.path``. Raises ``ConfigError``."""
    import importlib.util  # for agents and tools of Python files only

    path = expand_path(name).resolve()
    if not path.is_file():
        raise ConfigError(f"{name}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"vaka_file_{path.stem}_{abs(hash(path)):x}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{name}: not a Python file; its name must end in .py")
    if spec.name in sys.modules:
        return sys.modules[spec.name]
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    reserve_stdout()
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if isinstance(error, Exception | SystemExit):
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ConfigError(f"{_error_location(error, path)}: {type(error).__name__}: {message}") from error
        raise
    return module


def _resolve_agent(text: str | None, tools: Sequence[ToolLike], settings: Settings, trust: TrustOfScript) -> Agent:
    if text is None:
        return Agent(DEFAULT_AGENT)
    if text.endswith(SCRIPT_SUFFIX):
        from vaka.runtime.scripts import LuauAgent

        return _load_script(text, lambda path, libs: LuauAgent(path.stem, path, libs=libs, trusted=trust(path)))
    if ".py" in text:
        return _load_agent_file(text)
    from vaka.cli.project_agents import find_project_agent

    return find_project_agent(settings, text, tools)


def _load_tool_file(file: str, trust: TrustOfScript) -> "Sequence[Tool | BindableTool]":
    if file.endswith(SCRIPT_SUFFIX):
        from vaka.luau.tool import LuauTool

        return [_load_script(file, lambda path, libs: LuauTool(path, libs=libs, trusted=trust(path)))]
    tools = _find_tools(load_module(file))
    if not tools:
        raise ConfigError(f"{file}: no tools; mark functions with @vaka.tool")
    return tools


def _load_script(file: str, make: Callable[[Path, tuple[Path, ...]], T]) -> T:
    """Read and compile a script now, so that its errors are reported before a turn starts."""
    path = expand_path(file)
    if not path.is_file():
        raise ConfigError(f"{file}: there is no such file")
    try:
        return make(path, library_folders_of(path))
    except ScriptError as error:
        raise ConfigError(str(error)) from error
    except InvalidInput as error:
        raise ConfigError(f"{file}: {error}") from error


def _load_agent_file(text: str) -> Agent:
    name, colon, wanted = text.rpartition(":")
    if not colon or not name.endswith(".py"):
        name, wanted = text, ""
    module = load_module(name)
    agents: dict[str, Agent] = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if wanted:
        if wanted not in agents:
            raise ConfigError(f"{name}: no vaka.Agent named {wanted!r}; it has {', '.join(agents) or 'none'}")
        return agents[wanted]
    if "agent" in agents:
        return agents["agent"]
    if len(set(agents.values())) != 1:
        raise ConfigError(f"{name}: expected one vaka.Agent, not {', '.join(agents) or 'none'}; write {name}:OBJECT")
    return next(iter(agents.values()))


def _find_tools(module: ModuleType) -> "list[Tool | BindableTool]":
    tools: list[Tool | BindableTool] = []
    for value in vars(module).values():
        members: list[Any] = [*value.values()] if isinstance(value, vaka.tools.Toolset) else [value]
        tools += [_check_spec(member) for member in members if _is_tool(member) and member not in tools]
    return tools


def _is_tool(value: Any) -> bool:
    """Whether a value is a tool or a bindable one; the ``spec`` of a class is not a ``ToolSpec``."""
    if isinstance(value, vaka.tools.FunctionTool):
        return True
    works = callable(getattr(value, "bind", None)) or callable(getattr(value, "parse", None))
    return works and isinstance(getattr(value, "spec", None), ToolSpec)


def _check_spec(tool: Any) -> "Tool | BindableTool":
    """Compute the schema now, so that its errors are reported before a turn starts."""
    try:
        tool.spec  # noqa: B018  # evaluated for its errors
    except InvalidInput as error:
        code = getattr(inspect.unwrap(tool.function), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else tool.name
        raise ConfigError(f"{where}: {error}") from error
    return cast("Tool", tool)


def _error_location(error: BaseException, path: Path) -> str:
    """Return ``file:line`` of a syntax error, or of the innermost frame in the file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f"{path}:{frames[-1].lineno}" if frames else str(path)


def apply_model_flags(
    agent: Agent, options: Iterable[str], tool_choice: str | None, schema: str | None
) -> "OutputSchema | None":
    """Set model options, tool choice and output schema on an agent; return the schema its answers must match."""
    agent.options = {**agent.options, **parse_model_options(options)}
    agent.tool_choice = tool_choice or agent.tool_choice
    if not schema:
        return output_schema_of(agent)
    if "output" in agent.options:
        raise UsageError("--output-schema and --option output=… set the same; leave one of them out")
    output_schema = load_output_schema(schema)
    agent.options, agent.output = {**agent.options, **output_schema.options}, output_schema.schema
    return output_schema


def parse_model_options(texts: Iterable[str]) -> dict[str, Any]:
    """Return ``KEY=VALUE`` as options: a value is JSON where the option takes it, else text. Raises ``UsageError``."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--option {text}: expected KEY=VALUE, such as reasoning=high or temperature=0")
        if name in options:
            hint = '; for several texts write stop=["a", "b"]' if name == "stop" else ""
            raise UsageError(f"--option {name} is given twice; leave one of them out{hint}")
        options[name] = _parse_option_value(name, value)
    return options


def load_output_schema(file: str) -> "OutputSchema":
    """Return the output schema in a file with a JSON Schema. Raises ``UsageError``."""
    path = expand_path(file)
    try:
        with path.open("rb") as file_object:
            data = file_object.read(MAX_SCHEMA_BYTES + 1)
        if len(data) > MAX_SCHEMA_BYTES:
            raise UsageError(f"--output-schema {file}: larger than the {MAX_SCHEMA_BYTES} bytes a schema may have")
        from vaka.runtime.structured_output import OutputSchema

        output_schema = OutputSchema(msgspec.json.decode(data, type=dict[str, Any]))
    except OSError as error:
        raise UsageError(f"--output-schema {file}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"--output-schema {file}: expected a JSON Schema: {error}") from error
    except InvalidInput as error:
        raise UsageError(f"--output-schema {file}: {error}") from error
    output_schema.name = re.sub(r"[^A-Za-z0-9_-]", "_", path.stem)[:64] or "answer"
    return output_schema


def _parse_option_value(name: str, text: str) -> Any:
    """Return a text as JSON if the option accepts that, else as it is. Raises ``UsageError``."""
    candidates: list[Any] = [text]
    with suppress(msgspec.DecodeError, RecursionError):
        candidates.insert(0, msgspec.json.decode(text))
    fault: BadRequest | None = None
    for value in candidates:
        try:
            from vaka.models.options import read_options

            read_options({name: value}).output_format  # noqa: B018  # evaluated for its errors
        except BadRequest as error:
            fault = fault or error
        else:
            return value
    raise UsageError(f"--option {name}={text}: {fault}")
