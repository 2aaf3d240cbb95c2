"""``.claude`` settings: the file of each layer, and what they set."""

import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from vaka.config.documents import (
    JsonPath,
    blank_comments,
    is_inline_json,
    iter_json_lines,
    parse_json,
    read_errors,
    type_name,
    value_at,
)
from vaka.config.settings import (
    CLAUDE_FOLDER,
    LOCAL_SETTINGS,
    MANAGED,
    USER_SETTINGS,
    ConfigContext,
    LoadedPermissions,
    Settings,
    SettingsFile,
    layers_from_settings,
    repository_root_of,
)
from vaka.core.types.errors import ConfigError
from vaka.core.types.tool import SANDBOX_ONLY_RULE, Layer

FLAG_FILE = "settings"
"""The layer of ``--settings``."""
OVERRIDE = "override"
"""The layer of settings that a program passes."""
MODEL_TIERS = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of models in ``.claude`` files, and the tiers of models that they stand for."""
ALLOWED_HOSTS = ("sandbox", "network", "allowedDomains")
MAX_SETTINGS_BYTES = 4 * 1024 * 1024
CLAUDE_STATE = ".claude.json"
"""The file in the home folder with the user's MCP servers, and with the user's servers for single projects."""
MAX_STATE_BYTES = 64 * 1024 * 1024
PROJECT_SERVERS = ".mcp.json"
"""The file with the MCP servers of a project."""
MANAGED_SERVERS = "managed-mcp.json"
"""The file beside the administrator's settings whose MCP servers are the only ones."""

_DROP_INS = "managed-settings.d"

_LIST_KEYS = ("allow", "ask", "deny", "additionalDirectories")

_FATAL_KEYS = ("permissions", "disallowedTools")
"""Keys whose wrong values end a command: without a rule that denies, more would be allowed."""

_PROJECT_FILES = {"settings.json": "project", LOCAL_SETTINGS: "local"}
"""Settings files of a project, the weaker first, with the names of their layers."""


def problems_of(file: SettingsFile) -> tuple[list[str], list[str]]:
    """Return the wrong values that end a command, and the other problems that every command notes."""
    from vaka.project.claude_keys import check_document  # noqa: PLC0415  # most programs read no such file

    found = check_document(file.document)
    fatal = [f"{file.locate(one.path)}: {one.message}" for one in found if one.is_error and is_fatal(one.path)]
    notes = [
        f"{file.locate(one.path)}: {one.message}{'; it is ignored' if one.is_error else ''}"
        for one in found
        if one.matters and not (one.is_error and is_fatal(one.path))
    ]
    return fatal, notes


def is_fatal(path: JsonPath) -> bool:
    """Return whether a wrong value at ``path`` ends a command."""
    return bool(path) and path[0] in _FATAL_KEYS


def managed_folders() -> tuple[Path, ...]:
    """Return the folders with the administrator's settings, the strongest last. No variable changes them."""
    if sys.platform == "darwin":
        return (Path("/Library/Application Support/ClaudeCode"), Path("/Library/Application Support/vaka"))
    if sys.platform == "win32":
        return (Path(r"C:\Program Files\ClaudeCode"), Path(r"C:\Program Files\vaka"))
    return (Path("/etc/claude-code"), Path("/etc/vaka"))


def load_permissions(
    context: ConfigContext,
    *,
    settings: Path | str | None = None,
    flags: Settings | None = None,
    trust: bool = False,
    managed: Sequence[Path] | None = None,
    files: Sequence[SettingsFile] | None = None,
) -> LoadedPermissions:
    """Return the permission layers that apply in ``context``.

    ``settings`` is a further file, or JSON; ``flags`` are vaka's own settings, flags included. ``files`` comes
    from ``load_settings_files``, if they have been read. Raises ``ConfigError`` that lists every wrong value.
    """
    if files is None:
        files = load_settings_files(context, settings=settings, trust=trust, managed=managed)
    if not files:
        return LoadedPermissions(layers=tuple(layers_from_settings(flags)) if flags is not None else ())
    problems = [problems_of(file) for file in files]
    if fatal := [problem for found, _ in problems for problem in found]:
        raise ConfigError("\n".join(fatal))
    layers = [layer for file in files for layer in _permission_layers_of(file)]
    own = layers_from_settings(flags) if flags is not None else ()
    weaker = [layer for layer in layers if layer.name != MANAGED]
    stronger = [layer for layer in layers if layer.name == MANAGED]
    notes = [note for _, found in problems for note in found]
    return LoadedPermissions(layers=(*weaker, *own, *stronger), notes=tuple(notes))


def load_settings_files(
    context: ConfigContext,
    *,
    settings: Path | str | None = None,
    trust: bool = False,
    managed: Sequence[Path] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[SettingsFile]:
    """Return the ``.claude`` settings that apply in ``context``, the weakest first. Raises ``ConfigError``.

    ``settings`` is a further file, or JSON; ``overrides`` are stronger than all files but the administrator's.
    """
    files: list[SettingsFile] = []
    for layer, path in settings_places(context, settings=settings, managed=managed):
        inline = layer == FLAG_FILE and is_inline_json(str(settings))
        text = str(settings) if inline else _read_if_exists(path)
        if text is None and layer == FLAG_FILE:
            raise ConfigError(f"{path}: there is no such file")
        if text is not None:
            folder = context.cwd if inline else _base_folder_of(layer, path, context)
            file = _parse_file(text, layer, path, folder, trust=trust)
            if layer == "local" and not trust:
                file = msgspec.structs.replace(file, approved=_load_approved_rules(context, path))
            files.append(file)
    if overrides is not None:
        first = next((index for index, file in enumerate(files) if file.layer == MANAGED), len(files))
        files.insert(first, SettingsFile(layer=OVERRIDE, path=Path("settings overrides"), document=dict(overrides)))
    return files


def _parse_file(text: str, layer: str, path: Path, folder: Path | None, *, trust: bool) -> SettingsFile:
    project = layer in _PROJECT_FILES.values()
    try:
        document, plain = parse_document(text, str(path)), text
    except ConfigError:
        plain = blank_comments(text)
        if plain == text:
            raise
        document = parse_document(plain, str(path))
    return SettingsFile(
        layer=layer,
        path=path,
        document=document,
        text=plain,
        has_comments=plain != text,
        project=project,
        folder=str(folder or ""),
        trusted=trust or not project,
    )


def settings_places(
    context: ConfigContext, *, settings: Path | str | None = None, managed: Sequence[Path] | None = None
) -> list[tuple[str, Path]]:
    """Return the layer and path of each ``.claude`` settings file, existing or not, the weakest first."""
    places = [("user", context.home / CLAUDE_FOLDER / USER_SETTINGS)]
    root = context.project_folder or context.repository
    if root != context.home:
        places += [(layer, root / CLAUDE_FOLDER / name) for name, layer in _PROJECT_FILES.items()]
    if settings:
        inline = is_inline_json(str(settings))
        places.append((FLAG_FILE, Path("--settings") if inline else context.cwd / Path(settings).expanduser()))
    for folder in managed_folders() if managed is None else managed:
        drop_ins = _drop_in_files(folder / _DROP_INS)
        places += [(MANAGED, path) for path in (folder / "managed-settings.json", *drop_ins)]
    return places


def watched_places(context: ConfigContext, settings: str = "") -> list[Path]:
    """Return the files and folders whose change may change the settings, existing or not."""
    places = [path for _, path in settings_places(context, settings=settings or None)]
    nearer = [context.cwd / CLAUDE_FOLDER / name for name in _PROJECT_FILES]
    drop_ins = [folder / _DROP_INS for folder in managed_folders()]
    return list(dict.fromkeys((*places, *nearer, *drop_ins)))


def project_trust_places(context: ConfigContext) -> list[Path]:
    """Return what the ``.claude`` folder of the project has that may allow or run things: settings and components.

    Local settings with nothing but rules that a person has approved are not among them.
    """
    root = context.project_folder
    if root is None:
        return []
    names = (*_PROJECT_FILES, "commands", "skills", "agents", "plugins")
    found = [path for name in names if (path := root / CLAUDE_FOLDER / name).exists()]
    return [path for path in found if path.name != LOCAL_SETTINGS or not _has_only_approved_rules(context, path)]


def _has_only_approved_rules(context: ConfigContext, path: Path) -> bool:
    try:
        document = read_document(path) or {}
    except ConfigError:
        return False
    rules: object = value_at(document, ("permissions", "allow"))
    if not isinstance(rules, list) or document != {"permissions": {"allow": rules}}:
        return False
    return _load_approved_rules(context, path).issuperset(map(str, cast("list[object]", rules)))


def parse_permission_layer(document: Mapping[str, Any], name: str, *, origin: str = "") -> Layer:
    """Return the permissions of a settings document. Raises ``ConfigError`` that lists every wrong value."""
    file = SettingsFile(layer=name, path=Path(origin or name), document=dict(document))
    if fatal := problems_of(file)[0]:
        raise ConfigError("\n".join(fatal))
    return permission_layer_of(file, origin=origin)


def _permission_layers_of(file: SettingsFile) -> Iterable[Layer]:
    """Yield the permissions of a settings file; if it is not trusted, its approved rules are a layer of their own."""
    layer = permission_layer_of(file)
    approved = tuple(rule for rule in layer.allow if rule in file.approved)
    if not approved:
        yield layer
        return
    yield msgspec.structs.replace(layer, allow=tuple(rule for rule in layer.allow if rule not in file.approved))
    yield Layer(
        name=layer.name, origin=layer.origin, folder=layer.folder, project=True, allow=approved, lines=layer.lines
    )


def approved_rules_file(context: ConfigContext, path: Path) -> Path:
    """Return the user's file with the rules that were approved for a project and stored in its settings at ``path``."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return context.user_file.parent / "approved_rules" / f"{name}.json"


def approved_rules_in(document: Mapping[str, Any], path: Path) -> list[str]:
    """Return the rules of ``approved_rules_file``; none if they are about another file than ``path``."""
    rules: object = document.get("rules") if document.get("file") == os.path.realpath(path) else None
    return [rule for rule in cast("list[object]", rules) if isinstance(rule, str)] if isinstance(rules, list) else []


def _load_approved_rules(context: ConfigContext, path: Path) -> frozenset[str]:
    try:
        return frozenset(approved_rules_in(read_document(approved_rules_file(context, path)) or {}, path))
    except ConfigError:
        return frozenset()  # a damaged copy approves nothing


def permission_layer_of(file: SettingsFile, *, origin: str | None = None) -> Layer:
    """Return the permissions of a settings file without its wrong values, which ``problems_of`` returns."""
    lists = {name: _texts_at(file, ("permissions", name)) for name in _LIST_KEYS}
    mode = _permission(file, "defaultMode")
    return Layer(
        name=file.layer,
        origin=str(file.path) if origin is None else origin,
        folder=file.folder,
        project=file.project,
        trusted=file.trusted,
        allow=lists["allow"],
        ask=lists["ask"],
        deny=(*lists["deny"], *_texts_at(file, ("disallowedTools",)), *_sandbox_rules(file)),
        mode=mode if isinstance(mode, str) else "",
        directories=lists["additionalDirectories"],
        lines=_rule_lines(file),
        no_bypass=_permission(file, "disableBypassPermissionsMode") in ("disable", True),
        exclusive=file.layer == MANAGED and file.document.get("allowManagedPermissionRulesOnly") is True,
    )


def _sandbox_rules(file: SettingsFile) -> tuple[str, ...]:
    """Return the deny rule of a file that requires the sandbox, or lets no command leave it."""
    required = settings_sandbox([file])[0] == "on"
    allowed = value_at(file.document, ("sandbox", "allowUnsandboxedCommands"))
    return (SANDBOX_ONLY_RULE,) if required or allowed is False else ()


def _permission(file: SettingsFile, name: str) -> Any:
    return value_at(file.document, ("permissions", name))


def _texts_at(file: SettingsFile, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return each text of a list once; a value that is no list has none."""
    found: object = value_at(file.document, path)
    items = cast("list[object]", found) if isinstance(found, list) else []
    return tuple(dict.fromkeys(item for item in items if isinstance(item, str)))


def _rule_lines(file: SettingsFile) -> dict[str, int]:
    """Return the lines of a file's rules and mode, for ``Layer.locate``."""
    lines: dict[str, int] = {}
    for path, line in iter_json_lines(file.text):
        if path == ("permissions", "defaultMode"):
            lines["mode"] = line
        elif len(path) == 3 and path[0] == "permissions" and path[1] in _LIST_KEYS:
            rule = _permission(file, str(path[1]))[cast("int", path[2])]
            lines.setdefault(f"{path[1]} {rule}", line)
        elif len(path) == 2 and path[0] == "disallowedTools" and isinstance(path[1], int):
            lines.setdefault(f"deny {file.document['disallowedTools'][path[1]]}", line)
    return lines


def is_of_project(path: Path, cwd: Path, home: Path) -> bool:
    """Return whether a file belongs to the project around ``cwd``, and not to the user, so that trust decides on it.

    The user's folder may hold repositories of others, such as marketplaces: work in one of them makes it the project.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  # without resolving links
    root, user = repository_root_of(cwd), home / CLAUDE_FOLDER
    is_inside_user = root != user and root.is_relative_to(user)
    is_inside = path.is_relative_to(root) or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
    return is_inside and (is_inside_user or not path.is_relative_to(user))


def settings_env(files: Iterable[SettingsFile]) -> dict[str, str]:
    """Return the environment variables that trusted files set; stronger files win.

    A project cannot set those that steer programs or decide where data is sent.
    """
    env: dict[str, str] = {}
    for file in files:
        table: object = file.document.get("env") if file.trusted else None
        for name, value in cast("dict[str, Any]", table).items() if isinstance(table, dict) else ():
            if isinstance(value, str | int | float) and "\0" not in f"{name}{value}" and may_set_variable(file, name):
                env[name] = str(value)
    return env


def sandboxed_programs(files: Iterable[SettingsFile]) -> tuple[str, ...]:
    """Return what ``sandbox.mcp`` and ``sandbox.hooks`` put into the sandbox; a project can only switch them on."""
    chosen: dict[str, bool] = {}
    for file in files:
        table: object = file.document.get("sandbox")
        for name in ("mcp", "hooks"):
            value: object = cast("dict[str, Any]", table).get(name) if isinstance(table, dict) else None
            if value is True or (value is False and not file.project):
                chosen[name] = value
    return tuple(name for name, inside in chosen.items() if inside)


def may_set_variable(file: SettingsFile, name: str) -> bool:
    """Return whether a file may set an environment variable."""
    return bool(name) and "=" not in name and not (file.project and _class_of_variable(name))


def _class_of_variable(name: str) -> str:
    from vaka.matching.variable_classes import class_of_variable  # noqa: PLC0415  # few projects set variables

    return class_of_variable(name)


def ignored_variables(files: Iterable[SettingsFile]) -> Iterable[str]:
    """Yield a note on each variable of a trusted project that does not count."""
    for file in files:
        table: object = file.document.get("env") if file.trusted and file.project else None
        for name in cast("dict[str, Any]", table) if isinstance(table, dict) else ():
            if what := _class_of_variable(name):
                where = file.locate(("env", name))
                yield f"{where}: the variable {name} does not count: it decides {what}, which only a user may set"


def settings_model(files: Iterable[SettingsFile]) -> tuple[str, str, str]:
    """Return the model that the strongest file names, as a name of vaka, its origin and layer; ``""`` for none.

    ``haiku``, ``sonnet`` and ``opus`` are tiers; a name of Claude is one of Anthropic.
    """
    for file in reversed([*files]):
        name: object = file.document.get("model")
        if isinstance(name, str) and name.strip() and name.strip() != "default":
            text = name.strip()
            tier = MODEL_TIERS.get(text.lower())
            model = tier or (f"anthropic/{text}" if text.startswith("claude-") else text)
            return model, file.locate(("model",)), file.layer
    return "", "", ""


def settings_sandbox(files: Iterable[SettingsFile]) -> tuple[str, str, str]:
    """Return the setting of the sandbox, its origin and layer; ``""`` for none. A project can only require it."""
    found = ("", "", "")
    for file in files:
        enabled = value_at(file.document, ("sandbox", "enabled"))
        required = value_at(file.document, ("sandbox", "failIfUnavailable")) is True and enabled is not False
        if required or (isinstance(enabled, bool) and not file.project):
            value = "on" if required else "auto" if enabled else "off"
            found = value, file.locate(("sandbox",)), file.layer
    return found


def settings_auto_compact(files: Iterable[SettingsFile]) -> tuple[bool | None, str, str]:
    """Return whether contexts are compacted by themselves, its origin and layer; ``None`` if no trusted file says."""
    for file in reversed([*files]):
        enabled: object = file.document.get("autoCompactEnabled")
        if isinstance(enabled, bool) and file.trusted:
            return enabled, file.locate(("autoCompactEnabled",)), file.layer
    return None, "", ""


def allowed_hosts_of(file: SettingsFile) -> tuple[str, ...]:
    """Return the hosts that commands may reach by a file, ``()`` if its folder is not trusted."""
    hosts = value_at(file.document, ALLOWED_HOSTS) if file.trusted else None
    return tuple(str(host) for host in cast("list[object]", hosts)) if isinstance(hosts, list) else ()


def hooks_are_disabled(files: Iterable[SettingsFile]) -> bool:
    """Return whether only the administrator's hooks run.

    ``disableAllHooks`` of a trusted file says so, and ``allowManagedHooksOnly`` of the administrator's. A folder that
    is not trusted cannot switch off the user's hooks, which may refuse calls.
    """
    return any(
        (file.document.get("disableAllHooks") is True and file.trusted)
        or (file.layer == MANAGED and file.document.get("allowManagedHooksOnly") is True)
        for file in files
    )


def may_have_content(context: ConfigContext) -> bool:
    """Return whether there may be memory files, skills or the like for agents: a look at few names."""
    if context.claude_folders:
        return True
    for folder in (context.cwd, *context.cwd.parents):
        for name in ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"):
            if (folder / name).exists():
                return True
    return False


def may_have_plugins(context: ConfigContext) -> bool:
    """Return whether there may be plugins: a look at few names."""
    return bool(context.claude_folders) and any((folder / "plugins").is_dir() for folder in context.claude_folders)


def project_server_files(context: ConfigContext) -> list[Path]:
    """Return the ``.mcp.json`` files between the root of the repository and the working folder, the weakest first."""
    return [path for folder in reversed(context.folders) if (path := folder / PROJECT_SERVERS).exists()]


def watched_server_files(context: ConfigContext, configs: Iterable[str] = (), *, strict: bool = False) -> list[Path]:
    """Return the files, except settings, whose change may change the MCP servers, existing or not.

    ``configs`` are further files, or JSON; with ``strict`` the files of the user and the project do not count.
    """
    own = [context.home / CLAUDE_STATE, *(folder / PROJECT_SERVERS for folder in context.folders)]
    named = [context.cwd / Path(text).expanduser() for text in configs if not is_inline_json(text)]
    return [*([] if strict else own), *named, *(folder / MANAGED_SERVERS for folder in managed_folders())]


def may_have_servers(context: ConfigContext, files: Iterable[SettingsFile]) -> bool:
    """Return whether there may be MCP servers: a look at few names."""
    for file in files:
        if "mcpServers" in file.document or "mcp" in file.document:
            return True
    if may_have_plugins(context) or project_server_files(context) or (context.home / CLAUDE_STATE).exists():
        return True
    return any((folder / MANAGED_SERVERS).exists() for folder in managed_folders())


def read_settings(path: Path, layer: str = "project") -> SettingsFile:
    """Return a settings file. Raises ``ConfigError``, also when there is no such file."""
    text = _read_if_exists(path)
    if text is None:
        raise ConfigError(f"{path}: there is no such file")
    return _parse_file(text, layer, path, None, trust=True)


def read_document(path: Path, limit: int = MAX_SETTINGS_BYTES) -> dict[str, Any] | None:
    """Return a settings file as data, ``None`` when it does not exist. Raises ``ConfigError``, also for comments."""
    text = _read_if_exists(path, limit)
    return None if text is None else parse_document(text, str(path))


def _read_if_exists(path: Path, limit: int = MAX_SETTINGS_BYTES) -> str | None:
    with read_errors(path):
        try:
            return read_settings_text(path, limit)
        except (FileNotFoundError, NotADirectoryError):
            return None


def parse_document(text: str, origin: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, ``{}`` for an empty text. Raises ``ConfigError`` that names ``origin``."""
    document = parse_json(text if text.strip() else "{}", origin)
    if not isinstance(document, dict):
        raise ConfigError(f"{origin}: expected an object, not {type_name(document)}")
    return cast("dict[str, Any]", document)


def read_settings_text(path: Path, limit: int = MAX_SETTINGS_BYTES) -> str:
    """Read a regular file; O_NONBLOCK keeps a FIFO in its place from blocking the reader."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"it has more than {limit} bytes")
    return data.decode("utf-8-sig")


def _base_folder_of(layer: str, path: Path, context: ConfigContext) -> Path | None:
    """Return the folder that ``/x`` is relative to in the rules of a file; the administrator's rules have none.

    In a --settings file it is the folder of the file, or the folder that holds ``.claude``.
    """
    if layer == MANAGED:
        return None
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  # without resolving links
    return folder.parent if folder.name == CLAUDE_FOLDER and folder.parent != context.home else folder


def _drop_in_files(folder: Path) -> list[Path]:
    with read_errors(folder):
        return sorted(folder.glob("*.json"))
