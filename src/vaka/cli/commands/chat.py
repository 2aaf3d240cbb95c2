"""``vaka chat``: a conversation at the terminal."""

import hashlib
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vaka.cli.build_agent import apply_model_flags
from vaka.cli.chat.type_ahead import TypeAhead
from vaka.cli.command_store import CommandStore
from vaka.cli.display.turn_display import locale_has_unicode
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import (
    ask_trust_once,
    claude_files_of,
    config_context,
    load_flag_settings,
    runtime_from_settings,
)
from vaka.cli.kit.errors import Quit, UsageError
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.turn.run_turn import RunTarget, open_session
from vaka.cli.turn.session_record import (
    ContinuedSession,
    continue_session,
    describe_run,
    explain_recorded_flags,
    find_record_of_flags,
    load_continued,
)
from vaka.config.settings import Settings, data_folder
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.ids import parse_session_id
from vaka.runtime.extras import explain_missing_extra
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from vaka.cli.chat.conversation import ChatSettings

CHOOSE = " "
"""The value of ``--resume`` without an id: the user chooses from a list. It is not a valid id."""

_EXAMPLES = options.format_examples(
    "vaka chat", "vaka chat --model local", "vaka chat -c", "vaka chat --resume", "vaka chat --session review"
)


@click.command(epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="[PROMPT]")
@options.agent_options
@options.flag_of("model")
@click.option("--option", multiple=True, metavar="KEY=VALUE", help="A model option, such as reasoning=high.")
@options.prompt_options
@click.option("--session", metavar="ID", help="Continue this session; a new id creates it.")
@click.option("--last", "-c", is_flag=True, help="Continue the session of this project that changed last.")
@click.option("--all", "everywhere", is_flag=True, help="With --last and --resume: of every project.")
@click.option(
    "--resume",
    "-r",
    is_flag=False,
    flag_value=CHOOSE,
    metavar="[ID]",
    help="Continue a session: that with this id, or one chosen from a list.",
)
@click.option("--fork", metavar="ID[@SEQ]", help="Copy a session (up to an event) and converse in the copy.")
@options.flag_of("theme")
@options.flag_of("plain")
@click.option(
    "--while-busy",
    type=click.Choice(["steer", "queue"]),
    default="steer",
    show_default=True,
    help="What an input does while a turn runs: join it, or wait behind it.",
)
@options.remote_options
@options.world_options
@options.plugin_option
@options.server_options
@options.policy_options
@options.limit_options
@options.store_options
def chat(words: tuple[str, ...], **flags: Any) -> None:
    """Converse with an agent. /help lists the commands and keys.

    Everything is kept in a session: leave at any time, and go on with `vaka chat -c`.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("vaka chat needs a terminal; without one use `vaka run`")
    if flags["server_url"] is not None:
        raise Quit(_converse_on_server(flags, " ".join(words)))
    if flags["api_key_file"] is not None:
        raise UsageError("--api-key-file goes with --server")
    flags |= {"ask": "wait", "tool_choice": None, "output_schema": None}
    if sum(bool(flags[name]) for name in ("last", "session", "fork", "resume")) > 1:
        raise UsageError("--last, --session, --fork and --resume each select a session; give one of them")
    if not flags["trust"]:
        ask_trust_once(config_context())
    settings = load_flag_settings(flags)
    with CommandStore() as place:
        if flags["resume"]:
            flags["session"] = _find_resumed(flags["resume"], settings, place, everywhere=flags["everywhere"])
        continued = continue_session(find_record_of_flags(flags, settings, place), flags, settings)
        with explain_recorded_flags(continued):
            raise Quit(_converse(continued, " ".join(words), place))


def _find_resumed(wanted: str, settings: Settings, place: CommandStore, *, everywhere: bool) -> str:
    """Return the id of the session that ``--resume`` names, or that the user chooses. Raises ``Quit`` for none."""

    async def find(store: Store) -> SessionInfo | None:
        if wanted != CHOOSE:
            return await store.sessions.find(parse_session_id(wanted))
        color = _theme_of(settings) != "none"
        with explain_missing_extra():
            from vaka.cli.chat.session_picker import pick_session

        return await pick_session(
            store, everywhere=everywhere, color=color, unicode=locale_has_unicode(), plain=_is_plain(settings)
        )

    info = place.run_with_store(settings, find)
    if info is None and wanted != CHOOSE:
        raise UsageError(f"there is no session {wanted!r}; --resume without an id lists them")
    if info is None:
        raise Quit(0)
    return info.id


def _converse(continued: ContinuedSession, prompt: str, place: CommandStore) -> int:
    continued, agent = load_continued(continued, lambda note: click.echo(note, err=True))
    flags, record = continued.flags, continued.record
    apply_model_flags(agent, flags["option"], None, None)
    name = record.id if record is not None and not flags["fork"] else flags["session"] or ""
    target = RunTarget(session=name, fork=flags["fork"] or "", run_settings=describe_run(continued, agent))

    async def work(keys: str) -> int:
        store = place.store_of(continued.settings)
        async with runtime_from_settings(continued.settings, agent, quiet=True, ask="wait", store=store) as runtime:
            with explain_missing_extra():
                from vaka.cli.chat.conversation import Chat

            session = await open_session(runtime, target)
            chat_settings = _local_settings(runtime, continued.settings, flags)
            return await Chat(runtime, session, chat_settings).run(prompt, keys=keys)

    return _run_chat(work, continued.settings, place.run)


def _run_chat(
    work: Callable[[str], Coroutine[Any, Any, int]],
    settings: Settings,
    run: Callable[[Coroutine[Any, Any, int]], int] = run_loop,
) -> int:
    """Run a chat; ``work`` gets the keys that were typed before it."""
    if _is_plain(settings):  # the terminal edits the lines
        return run(work(""))
    with TypeAhead() as typed:
        return run(work(typed.keys))


def _converse_on_server(flags: dict[str, Any], prompt: str) -> int:
    with explain_missing_extra():
        from vaka.cli.remote.chat import converse_on_server

    settings = load_flag_settings(flags)
    chat_settings = _chat_settings(settings, flags)
    return _run_chat(lambda keys: converse_on_server(flags, chat_settings, prompt, keys), settings)


def _local_settings(runtime: Runtime, settings: Settings, flags: Mapping[str, Any]) -> "ChatSettings":
    from vaka.cli.chat.status_line import status_command

    commands: dict[str, str] = {}
    if runtime.options.project.content is not None:
        from vaka.project.components import slash_commands

        commands = slash_commands(config_context(), settings.plugin_dirs)

    def set_mode(mode: str) -> None:
        settings.flags["permission_mode"] = mode
        settings.reload()

    return _chat_settings(
        settings,
        flags,
        mode=settings["permission_mode"],
        set_mode=set_mode,
        project_commands=commands,
        status=status_command(claude_files_of(settings)),
        find_mode=lambda: str(getattr(runtime.env.policy, "mode", settings["permission_mode"])),
    )


def _chat_settings(settings: Settings, flags: Mapping[str, Any], **more: Any) -> "ChatSettings":
    with explain_missing_extra():
        from vaka.cli.chat.conversation import ChatSettings
        from vaka.cli.chat.terminal import open_output

    return ChatSettings(
        theme=_theme_of(settings),
        plain=_is_plain(settings),
        notify=settings["notify"],
        unicode=locale_has_unicode(),
        busy=flags["while_busy"],
        history=_history_file(),
        output=open_output(),
        **more,
    )


def _is_plain(settings: Settings) -> bool:
    """Whether the chat prints lines only: the settings say so, or the terminal cannot move its cursor."""
    return settings["plain"] == "on" or os.environ.get("TERM") == "dumb"


def _theme_of(settings: Settings) -> str:
    """Return the theme of the settings; ``none`` if the environment does not want colours."""
    with explain_missing_extra():
        from vaka.cli.chat.terminal_reports import theme_of_environment

    known = theme_of_environment(os.environ)
    return known if known and (known == "none" or settings["theme"] == "auto") else settings["theme"]


def _history_file() -> Path:
    """Return the file with the inputs of this project, readable only by its owner."""
    folder = data_folder(os.environ, Path.home()) / "history"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / hashlib.sha256(str(Path.cwd()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    file.touch(mode=0o600, exist_ok=True)
    return file
