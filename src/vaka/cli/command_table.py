"""The commands of ``vaka`` by name. Each is imported when it is used, to keep start-up short."""

from collections.abc import Callable

import click


def _run() -> click.Command:
    from vaka.cli.commands.run import run

    return run


def _chat() -> click.Command:
    from vaka.cli.commands.chat import chat

    return chat


def _serve() -> click.Command:
    from vaka.runtime.extras import explain_missing_extra

    with explain_missing_extra():
        from vaka.cli.commands.serve import serve

    return serve


def _init() -> click.Command:
    from vaka.cli.commands.init import init

    return init


def _sessions() -> click.Command:
    from vaka.cli.commands.sessions import sessions

    return sessions


def _store() -> click.Command:
    from vaka.cli.commands.store import store

    return store


def _trace() -> click.Command:
    from vaka.cli.commands.trace import trace

    return trace


def _approvals() -> click.Command:
    from vaka.cli.commands.approvals import approvals

    return approvals


def _luau() -> click.Command:
    from vaka.cli.commands.luau import luau

    return luau


def _models() -> click.Command:
    from vaka.cli.commands.models import models

    return models


def _login() -> click.Command:
    from vaka.cli.commands.login import login

    return login


def _logout() -> click.Command:
    from vaka.cli.commands.login import logout

    return logout


def _tools() -> click.Command:
    from vaka.cli.commands.tools import tools

    return tools


def _permissions() -> click.Command:
    from vaka.cli.commands.permissions import permissions

    return permissions


def _keys() -> click.Command:
    from vaka.cli.commands.keys import keys

    return keys


def _acp() -> click.Command:
    from vaka.cli.commands.acp import acp

    return acp


def _agents() -> click.Command:
    from vaka.cli.commands.agents import agents

    return agents


def _trust() -> click.Command:
    from vaka.cli.commands.config import trust

    return trust


def _config() -> click.Command:
    from vaka.cli.commands.config import config

    return config


def _doctor() -> click.Command:
    from vaka.cli.commands.doctor import doctor

    return doctor


def _completion() -> click.Command:
    from vaka.cli.commands.version import completion

    return completion


def _version() -> click.Command:
    from vaka.cli.commands.version import version

    return version


COMMANDS: dict[str, tuple[Callable[[], click.Command], str]] = {
    "run": (_run, "Run one turn: the result on stdout, progress on stderr."),
    "chat": (_chat, "Converse with an agent at the terminal."),
    "serve": (_serve, "Serve agents over HTTP: API, console and other protocols."),
    "init": (_init, "Write vaka.toml and an agent file into this folder."),
    "sessions": (
        _sessions,
        "Create, list, show, search, export, fork, rewind, move, check and erase sessions.",
    ),
    "store": (_store, "Back up a store to a file, and restore it."),
    "trace": (_trace, "Show turns as waterfalls of spans, or export them."),
    "approvals": (_approvals, "List, decide and answer what waits for a person."),
    "luau": (_luau, "Run a Luau script as a program, a tool or an agent."),
    "models": (_models, "List models and keys, test a model, or serve the local one."),
    "login": (_login, "Store the key of a model provider, or list the stored ones."),
    "logout": (_logout, "Remove the stored key of a provider."),
    "tools": (_tools, "List tools, or make one governed call."),
    "permissions": (_permissions, "Check a call against the permission rules, or list the rules."),
    "keys": (_keys, "Create, list, revoke and rotate API keys of the server."),
    "acp": (_acp, "Serve an agent to an editor on stdin and stdout (Agent Client Protocol)."),
    "agents": (_agents, "List the agents of definitions, of the project, of your home folder and of plugins."),
    "trust": (_trust, "Trust the settings of a folder, or not."),
    "config": (_config, "Show, change and check settings, with the origin of each."),
    "doctor": (_doctor, "Check the installation, the settings and the store."),
    "completion": (_completion, "Print the completion script of a shell."),
    "version": (_version, "Print versions."),
}
"""What imports each command, and its line of help. The commands of features are in their ``feature.py``."""


def list_commands() -> dict[str, str]:
    """Return the lines of help of all commands, with the commands of installed features last."""
    from vaka.feature import find_features

    found = {name: text for name, (_, text) in COMMANDS.items()}
    for feature in find_features():
        found.update(feature.commands)
    return found


def find_command(name: str) -> click.Command | None:
    """Import a command; ``None`` if there is none of this name."""
    if name in COMMANDS:
        return COMMANDS[name][0]()
    from vaka.feature import find_features

    for feature in find_features():
        if name in feature.commands and feature.load_commands is not None:
            return next(command for command in feature.load(feature.load_commands) if command.name == name)
    return None


def format_examples(*lines: str) -> str:
    """Return the epilog of a help text; click does not wrap its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
