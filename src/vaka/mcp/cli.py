"""``vaka mcp``: list the MCP servers in force, try them, log in at one, and add or remove one. ``vaka mcp-server``."""

import asyncio
import importlib.util
import json
import re
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, TypeAlias

import click
import msgspec
from click.shell_completion import CompletionItem

from vaka.cli.kit import options
from vaka.cli.kit.arguments import hint_of_names, parse_json_object
from vaka.cli.kit.bootstrap import (
    has_terminal,
    load_file_settings,
    load_flag_settings,
    load_servers,
    print_notes,
    server_settings,
)
from vaka.cli.kit.checks import Check
from vaka.cli.kit.errors import FAILED, Quit, UsageError, redact_message
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.render import as_printable, print_json, print_table
from vaka.cli.kit.services import open_services, open_user_keys
from vaka.core.ports.feature_middleware import MiddlewareServices
from vaka.core.types.errors import InvalidInput, NotFound, VakaError
from vaka.core.types.message import replace_surrogates
from vaka.mcp.client import McpConnection
from vaka.mcp.definition import McpServer, ParsedServers, parse_servers, tool_part
from vaka.mcp.feature import FEATURE, load_login, load_protocol, load_stdio_server
from vaka.mcp.logins import describe_login_needed, uses_login
from vaka.mcp.middleware import server_starter
from vaka.mcp.server_files import SCOPES, ServerScope, add_server, list_scopes, remove_server
from vaka.mcp.stored_logins import StoredLogins, open_stored_logins
from vaka.mcp.tools import select_tools

MASK = "***"
MAX_WORD = 1000
"""Characters of an argument or address that are shown."""
OpenServices: TypeAlias = Callable[[], AbstractAsyncContextManager[MiddlewareServices]]


def _complete_servers(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    try:
        servers = load_servers(load_flag_settings(context.params)).servers
    except (VakaError, OSError):
        return []
    names = dict.fromkeys(server.name for server in servers)
    return [CompletionItem(name) for name in names if name.startswith(begun)]


_server_argument = click.argument("name", shell_complete=_complete_servers)

_file_options = options.group_options(
    options.server_options,
    click.option("--settings", metavar="FILE", help="One more settings file, stronger than the files of the folder."),
    click.option("--trust", is_flag=True, help="Also use the servers of a folder that is not trusted."),
    options.plugin_option,
    options.verbose_option,
)
_scope_option = click.option(
    "-s",
    "--scope",
    type=click.Choice(SCOPES),
    help="local: you, in this project (the default of add); project: .mcp.json; user: you, everywhere.",
)
_env_option = click.option(
    "-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable of its process; may be repeated."
)
_header_option = click.option(
    "-H", "--header", multiple=True, metavar="'NAME: VALUE'", help="A header of each request; may be repeated."
)


@click.group()
def mcp() -> None:
    """List the MCP servers in force, try them, log in at one, and add or remove one.

    Servers are defined in .mcp.json of the project, in ~/.claude.json, in .claude settings and by plugins.
    """


@mcp.command("list", epilog=options.format_examples("vaka mcp list", "vaka mcp list --json --trust"))
@options.json_option
@_file_options
def list_servers(as_json: bool, **flags: Any) -> None:
    """List the servers of all files, and why one is not started. Nothing is started; secrets are hidden."""
    found = _load(flags)
    logins = open_stored_logins(open_user_keys)
    if as_json:
        print_json([describe_server(server) | {"login": logins.state_of(server)} for server in found.servers])
    else:
        rows = [
            (server.name, server.transport, server.origin, _target_of(server), _status_of(server, logins))
            for server in found.servers
        ]
        print_table(("NAME", "TRANSPORT", "ORIGIN", "COMMAND OR URL", "STATUS"), rows)
    print_notes(found.problems)


@mcp.command(epilog=options.format_examples("vaka mcp get github", "vaka mcp get github --json"))
@_server_argument
@options.json_option
@_file_options
def get(name: str, as_json: bool, **flags: Any) -> None:
    """Show what all files say about one server; secrets are hidden."""
    found = _load(flags)
    servers = _select(found.servers, (name,))
    if as_json:
        print_json([describe_server(server) for server in servers])
        return
    for server in servers:
        for key, value in describe_server(server).items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            click.echo(as_printable(f"{key + ':':<16}{text}", lines=False))
        click.echo()


@mcp.command("test", epilog=options.format_examples("vaka mcp test", "vaka mcp test db docs --json"))
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=_complete_servers)
@options.json_option
@_file_options
def try_servers(names: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Start each server, list its tools and end it. Exits with 1 if one fails.

    Without NAME all servers are tried that may be started.
    """
    settings = load_flag_settings(flags)
    found = load_servers(settings)
    chosen = _select(found.servers, names) if names else [server for server in found.servers if server.approved]
    by_name = {server.name: server for server in sorted(chosen, key=lambda server: server.approved)}
    trials = run_loop(
        _try_servers(
            [by_name[name] for name in dict.fromkeys(server.name for server in chosen)],
            partial(open_services, settings),
        )
    )
    _print_trials(trials, as_json=as_json)


def _print_trials(trials: "Sequence[ServerTrial]", *, as_json: bool = False) -> None:
    """Print what came of the starts. Raises ``Quit`` if a server failed."""
    if as_json:
        print_json(trials)
    elif not trials:
        click.echo("there is no server that may be started; see `vaka mcp list`", err=True)
    else:
        print_table(("NAME", "STATE", "PROTOCOL", "SERVER", "TIME", "TOOLS"), [trial.row for trial in trials])
    print_notes(note for trial in trials for note in trial.notes)
    if any(trial.state != "ready" for trial in trials):
        raise Quit(FAILED)


class ServerTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the start of a server."""

    name: str
    state: str
    reason: str = ""
    protocol: str = ""
    server: str = ""
    tools: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def row(self) -> tuple[str, ...]:
        tools = self.reason or ", ".join(self.tools)
        return self.name, self.state, self.protocol, self.server, f"{self.seconds:.2f} s", tools


async def _try_servers(servers: Sequence[McpServer], open_runtime: OpenServices) -> list[ServerTrial]:
    """Start all servers at once as a session would, in the sandbox if settings say so, and end them."""
    with suppress(ImportError):  # each connection reports a missing library; the time shown leaves out the import
        load_protocol()
    async with open_runtime() as services:
        start, logins = server_starter(services), open_stored_logins(services.open_keys)
        return await asyncio.gather(*(_try_server(McpConnection(server, start, logins=logins)) for server in servers))


async def _try_server(connection: McpConnection) -> ServerTrial:
    began = time.perf_counter()
    try:
        await connection.start()
        status, (tools, notes) = connection.status, select_tools(connection.server, connection.tools)
    finally:
        seconds = time.perf_counter() - began
        await connection.aclose()
    return ServerTrial(
        name=status.server,
        state="failed" if status.state == "idle" else status.state,
        reason=status.reason,
        protocol=status.protocol,
        server=status.software,
        tools=tuple(tool.name for tool in tools),
        seconds=seconds,
        notes=tuple(notes) if status.state == "ready" else (),
    )


@mcp.command("login", epilog=options.format_examples("vaka mcp login docs", "vaka mcp login docs --no-browser"))
@_server_argument
@click.option("--no-browser", is_flag=True, help="Only print the address, do not open it.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="How long you have to log in (300).",
)
@_file_options
def log_in(name: str, no_browser: bool, seconds: float, **flags: Any) -> None:
    """Log in at a remote server in a browser, store the login, and list the tools of the server.

    The address to open is printed on stderr. The login is stored like the keys of vaka login: in the system keyring if
    there is one, else in a file that only you can read. It is sent to the URL of this server only.
    """
    settings = load_flag_settings(flags)
    server = _select_for_login(load_servers(settings).servers, name)
    opens = not no_browser and has_terminal()

    def show(address: str) -> None:
        click.echo(f"open this address to log in at {as_printable(name)}:\n{as_printable(address)}", err=True)
        if opens:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    async def log_in_and_try() -> list[ServerTrial]:
        place = await FEATURE.load(load_login)(server, open_stored_logins(open_user_keys), show, seconds)
        click.echo(f"the login at {as_printable(name)} is stored in {as_printable(place)}", err=True)
        return await _try_servers([server], partial(open_services, settings))

    _print_trials(run_loop(log_in_and_try()))


def _select_for_login(servers: Sequence[McpServer], name: str) -> McpServer:
    """Return the server with the name. Raises ``InvalidInput`` if it may not be started, or takes no login."""
    server = max(_select(servers, (name,)), key=lambda server: server.approved)
    if not server.approved:
        raise InvalidInput(f"the server {name!r} is not started: {server.refusal}")
    if not uses_login(server):
        why = "it is a process" if server.transport == "stdio" else "its entry has credentials"
        raise InvalidInput(f"the server {name!r} takes no login: {why}")
    return server


@mcp.command("logout", epilog=options.format_examples("vaka mcp logout docs"))
@_server_argument
@_file_options
def log_out(name: str, **flags: Any) -> None:
    """Remove the stored login at a remote server."""
    logins = open_stored_logins(open_user_keys)
    urls = {server.url for server in _select(_load(flags).servers, (name,)) if server.url}
    if not [url for url in urls if logins.remove(url)]:
        raise NotFound(f"there is no stored login at {name!r}")
    click.echo(f"the login at {as_printable(name)} is removed", err=True)


class _AddCommand(click.Command):
    """A command whose last arguments are a command line with options of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                f"there is no option {error.option_name}; if it is one of the server, write -- before its command: "
                f"vaka mcp add NAME -- COMMAND [ARGS]…"
            ) from None


@mcp.command(
    cls=_AddCommand,
    epilog=options.format_examples(
        "vaka mcp add db -- npx -y @acme/db-server --read-only",
        "vaka mcp add db --env DB_URL='${DB_URL}' --scope project -- npx -y @acme/db-server",
        "vaka mcp add docs https://docs.example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'",
        "vaka mcp add old https://old.example.org/sse --transport sse --scope user",
    ),
)
@click.argument("name")
@click.argument("target", nargs=-1, required=True, metavar="URL|-- COMMAND [ARGS]…")
@click.option(
    "-t",
    "--transport",
    type=click.Choice(["stdio", "http", "sse"]),
    help="By default http for a URL, and stdio for a command.",
)
@_scope_option
@_env_option
@_header_option
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def add(name: str, target: tuple[str, ...], transport: str | None, scope: ServerScope | None, **more: Any) -> None:
    """Add a server. Write -- before a command, so that its options are not taken for options of vaka.

    ${NAME} and ${NAME:-default} in values stay as they are; they are replaced when the server starts.
    """
    first, *others = target
    kind = transport or ("http" if re.match(r"https?://", first) else "stdio")
    if kind != "stdio" and others:
        raise UsageError(f"{kind} takes one URL, and not also {others[0]!r}; write -- before a command")
    env, headers = _read_pairs("--env", more["env"], "="), _read_pairs("--header", more["header"], ":")
    if (headers and kind == "stdio") or (env and kind != "stdio"):
        raise UsageError("--env is for servers with a command, and --header for servers with a URL")
    entry: dict[str, Any] = {"command": first, "args": others} if kind == "stdio" else {"url": first}
    entry |= {"env": env} if env else {"headers": headers} if headers else {}
    _add(name, {"type": kind, **entry}, scope)


@mcp.command(
    "add-json",
    epilog=options.format_examples(
        """vaka mcp add-json db '{"command": "npx", "args": ["-y", "@acme/db-server"]}'""",
    ),
)
@click.argument("name")
@click.argument("text", metavar="JSON")
@_scope_option
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def add_json(name: str, text: str, scope: ServerScope | None, verbose: bool) -> None:
    """Add a server whose entry is given as JSON, as it stands in .mcp.json."""
    _add(name, parse_json_object(text, "an object with command or url"), scope)


def _add(name: str, entry: dict[str, Any], scope: ServerScope | None) -> None:
    if tool_part(name) != name:
        raise InvalidInput(f"the name {name!r} must have letters, digits, - and single _ only; try {tool_part(name)!r}")
    parsed = parse_servers({"mcpServers": {name: entry}}, origin=name, environment=_References())
    if parsed.servers[0].refusal:
        raise InvalidInput(f"{name}: {parsed.servers[0].refusal}")
    path = add_server(server_settings(), scope or "local", name, entry)
    print_notes(parsed.problems)
    click.echo(f"{as_printable(str(path))}: added {name} (scope {scope or 'local'})", err=True)


@mcp.command(epilog=options.format_examples("vaka mcp remove db", "vaka mcp remove db --scope project"))
@_server_argument
@_scope_option
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def remove(name: str, scope: ServerScope | None, verbose: bool) -> None:
    """Remove a server from the file that add would write; --scope is needed if several files have it."""
    scopes: list[ServerScope] = [scope] if scope is not None else list_scopes(server_settings(), name)
    if not scopes:
        _select(_load({}).servers, (name,), removable=False)
    if len(scopes) > 1:
        raise UsageError(f"there is a server {name!r} in several scopes: {', '.join(scopes)}; choose one with --scope")
    path = remove_server(server_settings(), scopes[0], name)
    click.echo(f"{as_printable(str(path))}: removed {as_printable(name)} (scope {scopes[0]})", err=True)


def _load(flags: Mapping[str, Any]) -> ParsedServers:
    return load_servers(load_flag_settings(flags))


def _select(servers: Sequence[McpServer], names: Sequence[str], *, removable: bool = True) -> list[McpServer]:
    """Return the servers with the names. Raises ``NotFound``, also if commands do not change the file of a server."""
    known = [server.name for server in servers]
    for name in names:
        if name not in known:
            raise NotFound(f"there is no MCP server {name!r}{hint_of_names(name, known)}")
    found = [server for server in servers if server.name in names]
    if not removable:
        raise NotFound(f"the server {names[0]!r} is defined in {found[0].origin}; remove it there")
    return found


def _read_pairs(option: str, texts: Sequence[str], separator: str) -> dict[str, str]:
    pairs = [text.partition(separator) for text in texts]
    for text, (name, found, _) in zip(texts, pairs, strict=True):
        if not found or not name.strip():
            raise UsageError(f"{option} {text.partition('=')[0]!r}: expected NAME{separator}VALUE")
    return {name.strip(): value.strip() if separator == ":" else value for name, _, value in pairs}


# ------------------------------------------------------------------------------------------------------ what is shown


class _References(Mapping[str, str]):
    """An environment in which each variable stays what it is written as."""

    def __getitem__(self, name: str) -> str:
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_REFERENCES = re.compile(r"(?:Bearer |Basic |token )?(?:\$\{[^{}]*\})*", re.IGNORECASE)
_CREDENTIAL = r"[\w.-]*(?:key|token|secret|passw|pwd|auth|credential|cookie)[\w.-]*"
_NAMED_VALUE = re.compile(rf"(-{{0,2}}{_CREDENTIAL}\s*[:=]\s*)(.+)", re.IGNORECASE | re.DOTALL)
_SECRET_FLAG = re.compile(rf"--?{_CREDENTIAL}", re.IGNORECASE)
_URL_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<==)[^&#\s]+|(?<=/)(?=[^/?#\s]*\d)[\w%.~-]{20,}(?=[/?#\s]|$)")


def describe_server(server: McpServer) -> dict[str, Any]:
    """Return a server as data that may be shown: variables are not replaced, and secrets are hidden."""
    entry: dict[str, Any] = {"mcpServers": {server.name: dict(server.written)}}
    (written,) = parse_servers(entry, environment=_References()).servers
    shown: dict[str, Any] = {"name": server.name, "transport": server.transport}
    if server.transport == "stdio":
        words = _mask_words((written.command, *written.args))
        shown |= {"command": words[0], "args": words[1:], "env": _mask_values(written.env), "cwd": server.cwd}
    else:
        shown |= {"url": _mask_text(written.url[:MAX_WORD]), "headers": _mask_values(written.headers)}
    shown |= {
        "timeout": server.connect_timeout,
        "tool_timeout": server.tool_timeout,
        "required": server.required,
        "enabled_tools": [replace_surrogates(tool) for tool in server.enabled_tools],
        "disabled_tools": [replace_surrogates(tool) for tool in server.disabled_tools],
        "tool_prefix": server.tool_prefix,
        "origin": replace_surrogates(server.origin),
        "approved": server.approved,
        "reason": server.refusal,
        "warnings": server.problems,
    }
    return shown


def _target_of(server: McpServer) -> str:
    shown = describe_server(server)
    return str(shown.get("url") or " ".join((shown.get("command", ""), *shown.get("args", ()))))


def _status_of(server: McpServer, logins: StoredLogins) -> str:
    if not server.approved:
        return f"not started: {server.refusal}"
    login = logins.state_of(server)
    return "approved" if not login else "logged in" if login == "stored" else describe_login_needed(server)


def _mask_values(values: Mapping[str, str]) -> dict[str, str]:
    """Return variables or headers with their names and references to variables only."""
    return {name: value if _REFERENCES.fullmatch(value) else MASK for name, value in values.items()}


def _mask_words(words: Sequence[str]) -> list[str]:
    """Return a command line without the values of options that are named like secrets."""
    shown: list[str] = []
    words = [word if len(word) <= MAX_WORD else f"{word[:MAX_WORD]}…" for word in words]
    for before, word in zip(("", *words), words, strict=False):
        named = _NAMED_VALUE.fullmatch(word)
        if named is not None:
            shown.append(named[1] + (named[2] if _REFERENCES.fullmatch(named[2]) else MASK))
        elif _SECRET_FLAG.fullmatch(before) and not word.startswith("-"):
            shown.append(word if _REFERENCES.fullmatch(word) else MASK)
        else:
            shown.append(_mask_text(word))
    return shown


def _mask_text(text: str) -> str:
    return redact_message(_URL_SECRET.sub(MASK, text) if "://" in text else text)


# ------------------------------------------------------------------------------------------------------ vaka mcp-server

_agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME|FILE.py[:OBJECT]|FILE.luau|FILE.yaml",
    help="An agent to serve: one of the project or of yours (`vaka agents list`), a Python file that makes a "
    "vaka.Agent, a Luau script that is one, or a file that defines one; may be repeated.",
)


@click.command(
    "mcp-server",
    epilog=options.format_examples(
        "vaka mcp-server --model anthropic/claude-sonnet-5-5",
        "vaka mcp-server --agent review.py --agent docs.py:writer",
        "vaka mcp-server --cwd ~/project --permission-mode plan",
        "vaka mcp-server --expose Read --expose Grep",
    ),
)
@_agents_option
@options.tool_options
@click.option(
    "--expose",
    multiple=True,
    metavar="NAME",
    help="A tool of the first agent to offer beside the agents, under the same permission rules; may be repeated.",
)
@options.served_agent_options
def mcp_server(agents: tuple[str, ...], expose: tuple[str, ...], **flags: Any) -> None:
    """Serve agents to MCP clients: stdin and stdout carry the protocol, stderr the rest.

    Each agent is a tool ask_NAME. When a person must decide, the client is asked to show a form, if it can; with
    --ask suspend the result says how to decide instead. The end of stdin ends the process.
    """
    FEATURE.load(load_stdio_server)(agents, expose, flags)


# --------------------------------------------------------------------------------------------------------- vaka doctor


def check_servers() -> Iterator[Check]:
    """Yield whether the library is installed, and how many servers are defined and may be started; none is started."""
    missing = "" if importlib.util.find_spec("mcp") is not None else "missing: pip install 'vaka[mcp]'"
    yield Check("MCP", "note" if missing else "ok", missing or "mcp")
    try:
        settings = load_file_settings()
    except VakaError:  # the check of the settings reports it
        return
    try:
        found = load_servers(settings)
    except VakaError as error:
        yield Check("MCP servers", "fail", str(error))
        return
    refused = sum(not server.approved for server in found.servers)
    many = f"{len(found.servers)} defined, {refused} not started" if found.servers else "none defined"
    wrong = f", {len(found.problems)} problems" if found.problems else ""
    hint = "; see `vaka mcp list`" if refused or wrong else ""
    yield Check("MCP servers", "note" if hint else "ok", f"{many}{wrong}{hint}")
