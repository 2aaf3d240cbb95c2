"""``vaka serve``: serve agents over HTTP, with the console and every protocol that is on."""

import asyncio
import logging
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click
import msgspec

from vaka.agents.coding_prompt import is_coding_agent
from vaka.agents.react import Agent
from vaka.cli.build_agent import DEFAULT_AGENT, MissingModel, apply_model_flags, load_agent_of_flags
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import config_context, load_flag_settings, print_notes, runtime_from_settings
from vaka.cli.kit.errors import TERMINATED, Quit, UsageError
from vaka.cli.kit.stdout import discard_output_of_closed_terminal, echo, flush_stdout, own_stdout, reserve_stdout
from vaka.cli.serve_workers import SupervisorWatch, WorkerSupervisor, take_socket
from vaka.config.model_tables import InvalidTable
from vaka.config.server_tables import FEATURE_NAMES, JwtTable, ServerTable, check_names
from vaka.config.setting_keys import settings_of
from vaka.config.settings import Settings, data_folder, redact_setting, user_config_file
from vaka.core.types.errors import ConfigError, VakaError
from vaka.runtime.runtime import Runtime
from vaka.server.access_log import LineWriter
from vaka.server.app import open_service
from vaka.server.auth.addresses import RecordedAddress, login_url, record_address
from vaka.server.auth.authenticator import CredentialAuthenticator
from vaka.server.auth.jwt import JwtSettings
from vaka.server.kit.principal import LOCAL_PRINCIPAL
from vaka.server.kit.service import AgentService, require_model
from vaka.server.listen import StoppableServer, close_in_time, open_socket
from vaka.server.settings import MIB, ServerSettings
from vaka.server.workspaces import WorkspaceSettings

_log = logging.getLogger("vaka.server")

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # nosec B104  # compared, and not listened on
"""The addresses that mean all addresses of the machine, each with an address for a browser on this machine."""
LOG_SECONDS = 2.0
"""Seconds that the reader of the access log has for its last lines."""
_DEFAULT_STORE_NOTE = (
    "a server with several workers needs a store that they share; use sqlite:///PATH or postgresql://…"
)


@click.command(
    epilog=options.format_examples(
        "vaka serve",
        "vaka serve --open",
        "vaka serve --agent review.py --agent docs.py:writer --port 9000",
        "vaka serve --host 0.0.0.0 --allow-hostname agents.example.com",
        "vaka serve --workers 4 --store postgresql:///vaka",
    )
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME|FILE.py[:OBJECT]|FILE.luau|FILE.yaml",
    help="An agent to serve; may be repeated. By default the built-in agent, the project's agents and your own.",
)
@options.flags_of(ServerTable)
@click.option("--no-access-log", is_flag=True, help="Print no line of JSON for each request.")
@click.option("--no-ui", is_flag=True, help="Do not serve the console.")
@click.option("--open", "open_page", is_flag=True, help="Open the console in the browser, logged in.")
@click.option("--insecure", is_flag=True, help="Accept requests without a token. Only on an address of this machine.")
@click.option("--worker-socket", type=int, hidden=True)
@click.option("--worker-life", type=int, hidden=True)
@click.option("--announce", is_flag=True, hidden=True)
@options.tool_options
@options.served_agent_options
def serve(agents: tuple[str, ...], **flags: Any) -> None:
    """Serve agents over HTTP: the API below /api/v1, the console at /console, and other protocols.

    Requests need a token, which `vaka keys create` makes; the link that is printed logs a browser in, once. A turn goes
    on when its client leaves, and after a crash when the server starts again. Ctrl-C waits for running turns, a second
    one does not.
    """
    logging.basicConfig(level=logging.INFO if flags["verbose"] else logging.WARNING, stream=sys.stderr)
    settings = load_flag_settings(flags)
    table = _read_table(flags, settings)
    is_worker = flags["worker_socket"] is not None
    watch = SupervisorWatch(flags["worker_life"], table.drain_seconds) if flags["worker_life"] is not None else None
    if not is_worker:
        print_notes(settings.notes)
        _check_address(table, insecure=flags["insecure"])
    if table.workers > 1 and not is_worker:
        if settings["store"] == "memory:":
            raise UsageError(_DEFAULT_STORE_NOTE)
        raise Quit(WorkerSupervisor(open_socket(table.host, table.port), table.workers, table.drain_seconds).run())
    reserve_stdout()  # for the access log: agents may be loaded, and print, at any time
    served = ServedAgents(agents, flags, settings)
    runner = asyncio.Runner(loop_factory=_loop_factory())
    with runner:
        code = runner.run(_serve(served, table, flags, settings, watch))
    if code:
        raise Quit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop: uvloop where it is installed, which halves the cost of a stream."""
    try:
        import uvloop  # optional on platforms that it does not support
    except ImportError:
        return None
    return uvloop.new_event_loop


def _read_table(flags: Mapping[str, Any], settings: Settings) -> ServerTable:
    """Return ``[server]`` with the flags applied."""
    table = msgspec.structs.replace(ServerTable(), **settings["server"])
    keys = {key.field: key for key in settings_of(ServerTable)}
    given = {field: flags[key.name] for field, key in keys.items() if flags[key.name] not in (None, ())}
    added = {field: (*getattr(table, field), *value) for field, value in given.items() if keys[field].kind == "list"}
    table = msgspec.structs.replace(table, **given | added)
    try:
        check_names(table)
    except InvalidTable as error:
        raise UsageError(str(error).replace(error.at[0], keys[error.at[0]].flag_name, 1)) from None
    return table


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(table: ServerTable, *, insecure: bool) -> None:
    if insecure and not _is_loopback(table.host):
        raise UsageError(
            f"--insecure would let anyone who reaches {table.host} run agents here; leave it out and create keys with "
            "`vaka keys create`, or listen on 127.0.0.1"
        )


class ServedAgents(Mapping[str, Agent]):
    """The agents of a server by name. Agents of the project are loaded on first use."""

    def __init__(self, named: Sequence[str], flags: Mapping[str, Any], settings: Settings) -> None:
        """Load the agents that ``--agent`` names, or the built-in one. Raises what their loading does.

        If the built-in agent has no model, only the agents of the project are served; each must name its model.
        """
        self._flags: dict[str, Any] = {**flags, "tool_choice": None, "output_schema": None}
        self._settings = settings
        self._loaded: dict[str, Agent] = {}
        self._finds_agents = not named
        self._names: tuple[str, ...] = ()
        self.refresh()
        try:
            for name in named or (DEFAULT_AGENT,):
                agent = self._load(name)
                self._loaded[agent.name] = agent
        except MissingModel as error:
            if named or not self._load_project():
                raise
            _log.info("the built-in agent is not served: %s", error)

    def _load_project(self) -> bool:
        """Load the agents of the project; return whether there are any. Raises ``MissingModel``."""
        for name in self._names:
            try:
                self._loaded[name] = self._load(name)
            except MissingModel:
                raise
            except VakaError as error:  # the list of agents says why it cannot be used
                _log.warning("agent %s cannot be used: %s", name, error)
        return bool(self._loaded)

    @property
    def governing(self) -> Agent:
        """The agent whose kind decides about hooks, project content and MCP servers: the coding agent, if served."""
        agents = list(self._loaded.values())
        return next((agent for agent in agents if is_coding_agent(agent.instructions)), agents[0])

    def refresh(self) -> None:
        """Search for the agents of the project and of the user again; each is loaded again on its next use."""
        if not self._finds_agents:
            return
        for name in self._names:
            self._loaded.pop(name, None)
        from vaka.cli.project_agents import project_agent_names

        self._names = tuple(project_agent_names(self._settings))

    def _load(self, name: str) -> Agent:
        agent = load_agent_of_flags({**self._flags, "agent": name}, self._settings, keep_model=True)
        apply_model_flags(agent, self._flags["option"], None, None)
        return agent

    def __getitem__(self, name: str) -> Agent:
        if name not in self._loaded:
            if name not in self._names:
                raise KeyError(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._loaded, *self._names)))

    def __len__(self) -> int:
        return len({*self._loaded, *self._names})


def server_settings(table: ServerTable, features: Mapping[str, bool], *, ui: bool) -> ServerSettings:
    """Return the settings of a server. Features that a table does not name are on."""
    wanted = {name for name in FEATURE_NAMES if features.get(name, True) and (ui or name != "ui")}
    hosts = (*LOCAL_NAMES, *table.hosts) if _is_loopback(table.host) else (table.host, *LOCAL_NAMES, *table.hosts)
    return ServerSettings(
        features=frozenset(wanted),
        hosts=hosts,
        origins=table.origins,
        public_url=table.public_url,
        max_body_bytes=table.max_body_mib * MIB,
        requests_per_minute=table.requests_per_minute,
        burst=table.burst,
        concurrent_turns=table.concurrent_turns,
        max_streams=table.max_streams,
        streams_per_credential=table.streams_per_credential,
        workers=table.workers,
        drain_seconds=table.drain_seconds,
        workspaces=WorkspaceSettings(root=table.workspaces.root, tenants=table.workspaces.tenants),
        private_folders=_private_folders(),
    )


def _private_folders() -> tuple[str, ...]:
    """Return the folders with settings, keys and the default store of this user."""
    home = config_context().home
    settings_file = user_config_file(os.environ, home)
    return tuple(map(str, (settings_file.parent, data_folder(os.environ, home), home / ".claude")))


def _jwt_settings(table: JwtTable | None, environ: Mapping[str, str]) -> JwtSettings | None:
    if table is None:
        return None
    secret = environ.get(table.secret_env, "") if table.secret_env else ""
    if table.secret_env and not secret:
        raise ConfigError(f"server.jwt.secret_env: the variable {table.secret_env} is not set")
    unset = ("", ())
    given = {name: value for name, value in msgspec.structs.asdict(table).items() if value not in unset}
    given.pop("secret_env", None)
    try:
        return msgspec.convert({**given, "secret": secret}, JwtSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"server.jwt: {error}") from error


async def _serve(
    agents: ServedAgents,
    table: ServerTable,
    flags: Mapping[str, Any],
    settings: Settings,
    watch: SupervisorWatch | None = None,
) -> int:
    """Serve until a signal; return the exit code."""
    given = flags["worker_socket"]
    listener = open_socket(table.host, table.port) if given is None else take_socket(given)
    runtime = runtime_from_settings(settings, agents.governing, quiet=True, ask=settings["ask"] or "wait")
    service: AgentService | None = None
    lines: LineWriter | None = None
    running: RecordedAddress | None = None
    try:
        service = await open_service(
            runtime,
            agents,
            server_settings(table, settings["features"], ui=not flags["no_ui"]),
            jwt=_jwt_settings(table.jwt, os.environ),
            insecure=flags["insecure"],
            describe_settings=lambda: _describe_settings(settings),
        )
        lines = LineWriter(own_stdout().fileno()) if table.access_log and not flags["no_access_log"] else None
        server = StoppableServer(service, lines.write if lines is not None else None)
        if watch is not None:
            watch.call_on_death(asyncio.get_running_loop(), server.stop_listening)
        if given is None or flags["announce"]:
            pid = os.getpid() if given is None else os.getppid()
            address = _reachable_address(listener.getsockname()[:2])
            await _announce(service, listener.getsockname()[0], address, open_page=flags["open_page"])
            _note_unusable_model(runtime, agents.governing)
            _note_missing_key_set(table.jwt)
            running = await record_address(runtime.store.values, address, pid, table.public_url)
        await server.serve([listener])
    finally:
        discard_output_of_closed_terminal()
        if running is not None:
            await running.remove()
        try:
            ended = await close_in_time(runtime, service)
        finally:
            if lines is not None:
                lines.close(LOG_SECONDS)
    if not ended:
        click.echo("turns are unfinished; they continue when the server starts again", err=True)
        sys.stderr.flush()
        os._exit(TERMINATED)  # a turn that is cancelled now could not continue
    return 128 + server.signal if server.signal else 0


def _reachable_address(address: tuple[str, int]) -> str:
    """Return the URL at which a browser on this machine reaches a server that listens on an address."""
    host, port = address
    name = ALL_ADDRESSES.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


async def _announce(service: AgentService, host: str, url: str, *, open_page: bool) -> None:
    """Print where the server is, and the link that logs a browser in."""
    authenticator = service.guard.authenticator
    assert isinstance(authenticator, CredentialAuthenticator)  # noqa: S101  # open_service makes no other
    echo(f"vaka serves {', '.join(service.agents)} at {url}")
    if "ui" in service.settings.features:
        link = await authenticator.tickets.issue_link(LOCAL_PRINCIPAL)
        echo(f"console: {login_url(service.settings.public_url or url, link)} (this link works once)")
        if open_page:
            webbrowser.open(login_url(url, link))
    if {host, *service.settings.hosts} <= {*LOCAL_NAMES, *ALL_ADDRESSES} and host in ALL_ADDRESSES:
        click.echo(
            "note: requests of other machines are refused; allow the name they use with --allow-hostname", err=True
        )
    if not _is_loopback(host) and not await authenticator.keys.list():
        click.echo("note: there is no API key yet; create one with `vaka keys create`", err=True)
    flush_stdout()


def _note_unusable_model(runtime: Runtime, agent: Agent) -> None:
    """Print why the turns of an agent would fail; the server starts, since a key or a file may be added later."""
    try:
        require_model(runtime, agent)
    except VakaError as error:
        click.echo(f"note: the turns of agent {agent.name} will fail: {error}", err=True)


def _note_missing_key_set(table: JwtTable | None) -> None:
    """Print that the file with the public keys of the issuer of JWTs is missing; it may be added later."""
    if table is not None and table.jwks and "://" not in table.jwks and not Path(table.jwks).is_file():
        path = Path(table.jwks).absolute()
        click.echo(f"note: no JWT can be checked: the file of server.jwt.jwks, {path}, does not exist", err=True)


def _describe_settings(settings: Settings) -> list[dict[str, Any]]:
    """Return every setting with its origin; keys and passwords are hidden."""
    return [
        {"key": name, "value": redact_setting(name, value.value), "origin": value.origin, "layer": value.layer}
        for name, value in settings.values.items()
    ]
