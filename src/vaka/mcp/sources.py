"""The MCP servers of all settings layers, plugins and flags, and which of them may be started."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from vaka.core.types.errors import ConfigError
from vaka.mcp.definition import McpServer, ParsedServers, parse_servers
from vaka.mcp.settings import McpSettings, PluginFolder, SettingsDocument

NOT_TRUSTED = "the folder is not trusted (`vaka trust`)"

_PLUGIN_FILE = ".claude-plugin/plugin.json"
_PLUGIN_ROOT = "CLAUDE_PLUGIN_ROOT"

_MANAGED = "managed"
_ReadDocument = Callable[[Path], tuple[object, str]]
ServerLayer = Literal["user", "project", "local", "settings", "flag", "managed"]
_LAYERS: tuple[ServerLayer, ...] = ("user", "project", "local", "settings", "flag", "managed")
"""The layers, the weakest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The flags of a command line about servers."""

    configs: Sequence[str] = ()
    """Further files, or JSON texts."""
    strict: bool = False
    """Whether only those count, besides the administrator's."""
    plugin_dirs: Sequence[Path] = ()
    documents: dict[Path, object] = field(default_factory=dict[Path, object])
    """The last content of files, which counts while they cannot be read; reading adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StateTable:
    """What the user's state file says about this project; implements ``SettingsDocument``."""

    path: Path
    document: Mapping[str, Any]
    layer: str = "local"
    folder: str = ""
    project: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A document with servers."""

    layer: ServerLayer
    origin: str
    document: object
    project: bool = False
    """Whether it is a file of the project's folder, so that it counts only if that is trusted."""
    shared: bool = False
    """Whether it is a ``.mcp.json`` of the project, of which settings may choose servers."""
    folder: str = ""
    """The working folder of its servers; empty: the folder of the session."""
    plugin: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def servers_in_force(settings: McpSettings, flags: ServerFlags | None = None) -> ParsedServers:
    """Return every server that a file or a flag defines, the weakest layer first, and what is wrong.

    Of several servers with one name, the server of the strongest layer counts: local, then project, then user. The
    others have a ``refusal``, as have servers that are not trusted, approved or permitted. Raises ``ConfigError`` if a
    flag names a file that cannot be read.
    """
    flags = flags or ServerFlags()
    finder = _SourceFinder(settings, flags.documents)
    sources = sorted(finder.find(flags), key=lambda source: _LAYERS.index(source.layer))
    approval = _Approval(settings.files, finder.project_state, trusted=settings.trusted, exclusive=finder.exclusive)
    variables = {**_folders_of(settings, finder.root), **settings.variables(), **settings.environ}
    groups: list[list[McpServer]] = []
    counting: dict[str, McpServer] = {}
    for source in reversed(sources):
        parsed = parse_servers(source.document, origin=source.origin, environment={**variables, **source.variables})
        finder.problems += parsed.problems
        groups.append([])
        for server in (_place_server(server, source) for server in parsed.servers):
            refusal = approval.find_refusal(server, source)
            if refusal:
                groups[-1].append(replace(server, refusal=refusal))
                continue
            groups[-1].append(server.refuse(_find_collision(server, counting)))
            counting.setdefault(server.tool_prefix, server)
    servers = tuple(server for group in reversed(groups) for server in group)
    problems = tuple(dict.fromkeys((*finder.problems, *approval.problems)))
    return ParsedServers(servers, problems, tuple(finder.unreadable))


def select_servers(servers: Sequence[McpServer]) -> tuple[McpServer, ...]:
    """Return one server of each name, preferably a server that may be started."""
    return tuple({server.name: server for server in sorted(servers, key=lambda server: server.approved)}.values())


def _folders_of(settings: McpSettings, root: Path) -> dict[str, str]:
    """Return the folders that definitions may name, as this and other programs call them."""
    home = str(settings.home)
    return {"CLAUDE_PROJECT_DIR": str(root), "workspaceFolder": str(root), "HOME": home, "userHome": home}


def explain_missing_servers(servers: Sequence[McpServer]) -> list[str]:
    """Return a line for each file that is not trusted, and for each server whose entry prevents its start.

    What settings switch off needs no explanation.
    """
    lines: dict[str, None] = {}
    for server in servers:
        if server.refusal == NOT_TRUSTED:
            lines[f"{server.origin}: its MCP servers are not started, since {NOT_TRUSTED}"] = None
        elif server.refusal and any(problem.endswith(server.refusal) for problem in server.problems):
            lines[f"{server.origin}: the MCP server {server.name} is not started: {server.refusal}"] = None
    return list(lines)


def _place_server(server: McpServer, source: _Source) -> McpServer:
    """Return a server with the name and working folder that its source gives it."""
    name = f"plugin:{source.plugin}:{server.name}" if source.plugin else server.name
    folder = os.path.normpath(Path(source.folder, server.cwd)) if server.cwd or source.folder else ""
    return replace(server, name=name, cwd=folder if server.transport == "stdio" else "")


def _find_collision(server: McpServer, stronger: Mapping[str, McpServer]) -> str:
    """Return why a server is not started beside stronger ones: the names of their tools would be the same."""
    other = stronger.get(server.tool_prefix)
    if other is None:
        return ""
    if other.name == server.name:
        return f"{other.origin} has a server of this name, which counts"
    return f"its tools would have the same names as the tools of {other.name!r} ({other.origin})"


class _SourceFinder:
    """Finds the documents with servers."""

    def __init__(self, settings: McpSettings, documents: dict[Path, object]) -> None:
        self._settings = settings
        self._files = settings.files
        self._documents = documents
        self.root = settings.project_folder or settings.repository
        self.problems: list[str] = []
        self.unreadable: list[str] = []
        self.project_state: list[SettingsDocument] = []
        """The part of the user's state file about this project, as settings."""
        self.exclusive = ""
        """The administrator's file whose servers are the only ones, if there is one."""

    def find(self, flags: ServerFlags) -> list[_Source]:
        found = [*self._find_flags(flags.configs), *self._find_managed()]
        if not flags.strict:
            found = [*self._find_settings(), *self._find_state(), *self._find_shared(), *found]
            found += self._find_plugins(flags.plugin_dirs)
        return found

    def _find_settings(self) -> Iterator[_Source]:
        for file in self._files:
            document = {key: file.document[key] for key in ("mcpServers", "mcp") if key in file.document}
            if isinstance(document.get("mcp"), dict) and "servers" not in document["mcp"]:
                del document["mcp"]
            if document and file.layer != _MANAGED:
                folder = file.folder if file.project else ""
                layer = cast("ServerLayer", file.layer)
                yield _Source(
                    layer=layer, origin=str(file.path), document=document, project=file.project, folder=folder
                )

    def _find_shared(self) -> Iterator[_Source]:
        for path in self._settings.shared_files():
            document = self._read(path)
            if document is not None:
                yield _Source(
                    layer="project",
                    origin=str(path),
                    document=document,
                    project=True,
                    shared=True,
                    folder=str(path.parent),
                )

    def _find_state(self) -> Iterator[_Source]:
        """Yield the servers of ``~/.claude.json``: the user's servers, then the servers for this project."""
        path = self._settings.state_file
        document = self._read(path, lambda path: (self._settings.read_state(path), ""))
        if document is None:
            return
        state = cast("dict[str, Any]", document)
        yield _Source(layer="user", origin=str(path), document={"mcpServers": state.get("mcpServers")})
        projects = cast("dict[str, Any]", state["projects"]) if isinstance(state.get("projects"), dict) else {}
        top, cwd = self._settings.repository, self._settings.cwd
        for folder in reversed((cwd, *cwd.parents)):
            entry: object = projects.get(str(folder)) if folder.is_relative_to(top) else None
            if isinstance(entry, dict):
                table = cast("dict[str, Any]", entry)
                self.project_state.append(_StateTable(path=path, document=table))
                document = {"mcpServers": table.get("mcpServers")}
                yield _Source(layer="local", origin=str(path), document=document, folder=str(folder))

    def _find_plugins(self, plugin_dirs: Sequence[Path]) -> Iterator[_Source]:
        for plugin in self._settings.find_plugins(plugin_dirs, self.problems):
            root = Path(os.path.abspath(plugin.root))  # noqa: PTH100  # without resolving links
            project = self._settings.is_of_project(root)
            for path, document in self._read_plugin(plugin, root):
                yield _Source(
                    layer="project" if project else "user",
                    origin=str(path),
                    document=document,
                    project=project,
                    plugin=plugin.name,
                    folder=str(self.root),
                    variables={**plugin.variables, _PLUGIN_ROOT: str(root)},
                )

    def _read_plugin(self, plugin: PluginFolder, root: Path) -> Iterator[tuple[Path, object]]:
        """Yield the documents with the servers of a plugin: its file, and the files and tables of its manifest."""
        named: Any = plugin.manifest.get("mcpServers")
        items = cast("list[object]", named if isinstance(named, list) else [named])
        yield from ((root / _PLUGIN_FILE, item) for item in items if isinstance(item, dict))
        names = [os.path.normpath(item) for item in items if isinstance(item, str)]
        for name in dict.fromkeys((self._settings.shared_name, *names)):
            path = root / name
            if os.path.isabs(name) or name.startswith(".."):  # noqa: PTH117  # a text
                self.problems.append(f"{root / _PLUGIN_FILE}: mcpServers: {name!r} leads out of the plugin")
            elif path.is_file():
                document = self._read(path)
                yield from [(path, document)] if document is not None else []
            elif name != self._settings.shared_name:
                self.problems.append(f"{root / _PLUGIN_FILE}: mcpServers: there is no file {name!r}")

    def _find_flags(self, configs: Sequence[str]) -> Iterator[_Source]:
        """Yield the documents that flags name. Raises ``ConfigError``."""
        for text in configs:
            if text.lstrip().startswith(("{", "[")):
                document, problem = self._settings.parse_json(text, "--mcp-config")
                self.problems += [problem] if problem else []
                origin = "--mcp-config"
            else:
                path = self._settings.cwd / Path(text).expanduser()
                if not path.exists() and path not in self._documents:
                    raise ConfigError(f"--mcp-config: there is no file {str(path)!r}; name a file, or give JSON")
                read = self._read if path in self._documents else self._read_new
                document, origin = read(path), str(path)
            yield _Source(layer="flag", origin=origin, document=document)

    def _find_managed(self) -> Iterator[_Source]:
        for file in self._files:
            if file.layer == _MANAGED and "mcpServers" in file.document:
                document = {"mcpServers": file.document["mcpServers"]}
                yield _Source(layer="managed", origin=str(file.path), document=document)
        for path in self._settings.managed_files:
            self.exclusive = str(path)
            yield _Source(layer="managed", origin=str(path), document=self._read(path))

    def _read(self, path: Path, read: "_ReadDocument | None" = None) -> object:
        """Return a file as data; a file that cannot be read is a problem, and counts as it was read last."""
        try:
            return self._read_new(path, read)
        except ConfigError as error:
            self.problems.append(str(error))
            self.unreadable.append(str(error))
            return self._documents.get(path)

    def _read_new(self, path: Path, read: "_ReadDocument | None" = None) -> object:
        document, problem = (read or self._settings.read_servers)(path)
        self.problems += [problem] if problem else []
        self._documents[path] = document
        return document


class _Approval:
    """Decides which servers may be started: by trust, by the choices of settings, and by the lists of both kinds."""

    def __init__(
        self, files: Sequence[SettingsDocument], state: Sequence[SettingsDocument], *, trusted: bool, exclusive: str
    ) -> None:
        self._files = files
        self._choices = (*state, *files)
        self._trusted, self._exclusive = trusted, exclusive
        self.problems: list[str] = []
        self._denied = [rule for file in files for rule in self._read_rules(file, "deniedMcpServers")]
        self._allowed: dict[str, list[_ServerRule]] = {}
        for file in files:
            if file.document.get("allowedMcpServers") is not None:
                self._allowed.setdefault(file.layer, []).extend(self._read_rules(file, "allowedMcpServers"))

    def find_refusal(self, server: McpServer, source: _Source) -> str:
        """Return why a server may not be started, ``""`` if it may."""
        if self._exclusive and source.layer != "managed":
            return f"only the servers of {self._exclusive} may be started"
        for rule in self._denied:
            if rule.matches(server) or rule.matches(replace(server, name=server.name.rpartition(":")[2])):
                return f"deniedMcpServers of {rule.origin} names it"
        for layer, rules in self._allowed.items():
            if not _is_admitted(server, rules):
                return f"allowedMcpServers of the {layer} settings does not name it"
        if source.project and not self._trusted:
            return NOT_TRUSTED
        return self._find_choice(server, source)

    def _find_choice(self, server: McpServer, source: _Source) -> str:
        """Return why the lists of names in settings exclude a server, ``""`` if they do not."""
        keys = ("disabledMcpServers", "disabledMcpjsonServers") if source.shared else ("disabledMcpServers",)
        for file in self._choices:
            for key in keys:
                if server.name in self._names(file, key):
                    return f"{key} of {file.path} names it"
        return "" if not source.shared else self._find_missing_choice(server)

    def _find_missing_choice(self, server: McpServer) -> str:
        """Return why a server is not among the chosen ones; the project's shared file chooses only if no other does."""
        others = [file for file in self._choices if file.layer != "project"]
        for files in (others, self._choices):
            switches = [file.document.get("enableAllProjectMcpServers") for file in files]
            everything = next((switch for switch in reversed(switches) if isinstance(switch, bool)), None)
            chosen = [name for file in files for name in self._names(file, "enabledMcpjsonServers")]
            if everything or server.name in chosen:
                return ""
            if everything is not None or chosen:
                return "enabledMcpjsonServers does not name it; add it to .claude/settings.local.json"
        return ""

    def _names(self, file: SettingsDocument, key: str) -> list[str]:
        value: object = file.document.get(key)
        items = cast("list[object]", value if isinstance(value, list) else [] if value is None else [value])
        if any(not isinstance(item, str) for item in items):
            self.problems.append(f"{file.path}: {key}: expected a list of names")
        return [item for item in items if isinstance(item, str)]

    def _read_rules(self, file: SettingsDocument, key: str) -> "Iterator[_ServerRule]":
        value: object = file.document.get(key)
        items = cast("list[object]", value if isinstance(value, list) else [] if value is None else [value])
        for item in items:
            rule = _read_rule(item, str(file.path))
            if rule is None:
                expected = "objects with serverName, serverUrl or serverCommand"
                self.problems.append(f"{file.path}: {key}: expected {expected}, not {item!r:.80}")
            else:
                yield rule


@dataclass(frozen=True, slots=True)
class _ServerRule:
    """An entry of an allow or deny list; everything that it names must be equal."""

    origin: str
    name: str = ""
    url: str = ""
    command: tuple[str, ...] = ()

    def matches(self, server: McpServer) -> bool:
        line = tuple(word.casefold() for word in (server.command, *server.args))
        return (
            (not self.name or self.name == server.name.strip().casefold())
            and (not self.url or (bool(server.url) and fnmatchcase(_normalize_url(server.url), self.url)))
            and (not self.command or self.command in (line, line[:1]))
        )


def _read_rule(item: object, origin: str) -> _ServerRule | None:
    table = cast("dict[str, Any]", item) if isinstance(item, dict) else {"serverName": item}
    name, url = table.get("serverName") or table.get("name"), table.get("serverUrl") or table.get("url")
    command: object = table.get("serverCommand") or table.get("command") or []
    words = shlex.split(command) if isinstance(command, str) else command
    line = tuple(str(word).casefold() for word in cast("list[object]", words)) if isinstance(words, list) else ()
    if not any(isinstance(part, str) and part for part in (name, url)) and not line:
        return None
    return _ServerRule(
        origin, str(name or "").strip().casefold(), _normalize_url(url) if isinstance(url, str) else "", line
    )


def _is_admitted(server: McpServer, rules: Sequence[_ServerRule]) -> bool:
    """Return whether an allow list has a server; where it lists commands or addresses, a name alone is not enough."""
    kind = "command" if server.transport == "stdio" else "url"
    strict = [rule for rule in rules if getattr(rule, kind)]
    return any(rule.matches(server) for rule in strict or rules)


def _normalize_url(url: str) -> str:
    """Return an address in the form in which addresses are compared: lower case, without user, query and last ``/``."""
    try:
        parts = urlsplit(url.strip().casefold())
        port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    except ValueError:
        return url.strip().casefold()
    if not parts.hostname:
        return url.strip().casefold()
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"
