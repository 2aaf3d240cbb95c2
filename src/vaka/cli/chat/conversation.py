"""A conversation at the terminal: input goes to the session, and everything shown comes from its events."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import click
import msgspec
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.output import Output
from rich.cells import cell_len, set_cell_size

from vaka import __version__
from vaka.agents.react import tool_name_of
from vaka.cli.chat.completion import ChatCompleter, attached_files
from vaka.cli.chat.notifications import Notifier
from vaka.cli.chat.plain_screen import PlainScreen
from vaka.cli.chat.prompt import ChatPrompt
from vaka.cli.chat.screen import ChatScreen
from vaka.cli.chat.slash_commands import SlashCommands
from vaka.cli.chat.status_line import StatusCommand
from vaka.cli.chat.typed_calls import MEMORY_FILES, TypedCall, command_calls, memory_files, note_calls
from vaka.cli.display.call_summary import declared_by
from vaka.cli.display.plain_renderer import format_cost, format_tokens, tokens_text
from vaka.cli.display.rich_renderer import RichRenderer
from vaka.cli.display.view import TICK_SECONDS, SessionView
from vaka.cli.kit.bootstrap import current_user
from vaka.cli.kit.errors import describe_error
from vaka.cli.kit.render import as_printable
from vaka.cli.strings import translate
from vaka.cli.turn.approval_prompt import DecisionPrompter
from vaka.cli.turn.attachments import read_attachments
from vaka.core.ports.agent import AgentKind
from vaka.core.ports.files import Files
from vaka.core.ports.store import PendingDecision, SessionInfo
from vaka.core.types.control import ApprovalRequested, QuestionAsked, key_of
from vaka.core.types.errors import InvalidInput, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId, Cursor, SessionId
from vaka.core.types.message import Text, replace_surrogates
from vaka.core.types.progress import GIVEN_CALLS
from vaka.runtime.options import UserInput
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session
from vaka.tools.builtin.search.glob import walk

TAIL_EVENTS = 200
"""Events of an existing session that are shown when it is opened."""
MAX_FILES = 20_000
"""Files that completion offers."""
MODES = ("default", "acceptEdits", "plan")
"""Permission modes that a key switches between."""
SECOND_INTERRUPT_SECONDS = 2.0
"""Seconds within which a second interrupt leaves the chat."""


class ChatSettings(msgspec.Struct, kw_only=True):
    """How a chat looks and behaves."""

    theme: str = "dark"
    """``dark``, ``light``, ``none``, or ``auto``: that which fits the background the terminal reports."""
    unicode: bool = True
    busy: str = "steer"
    """What an input does while a turn runs: ``steer`` it or ``queue`` behind it."""
    mode: str = "default"
    set_mode: Callable[[str], None] = lambda mode: None
    """Applies another permission mode."""
    find_mode: Callable[[], str] | None = None
    """Returns the mode in force, which settings files may change; default: ``mode``."""
    project_commands: Mapping[str, str] = {}
    """Descriptions of the commands and skills of the project, by name; ``/name`` sends them as a prompt."""
    history: Path | None = None
    plain: bool = False
    """Whether the chat prints lines only: without a spinner, colours and anything that is drawn again."""
    notify: str = "off"
    """The notification when the chat needs a person who looks elsewhere: ``off``, ``bell`` or ``desktop``."""
    notify_after: float = 10.0
    """Seconds: the end of a shorter turn is not notified, for its user is still there."""
    status: StatusCommand | None = None
    """Prints the status line, in place of the chat's own line."""
    output: Output | None = None
    """The terminal; ``None``: the output of the prompt_toolkit session."""


class Chat:
    """One session at the terminal."""

    def __init__(self, runtime: Runtime, session: Session, settings: ChatSettings) -> None:
        self.runtime = runtime
        self.session = session
        self.settings = settings
        self._declared = declared_by(getattr(session, "agent", None))
        """The traits of tools that are not built in; of a session of a server they are not known."""
        self._folder = Path.cwd()
        """The folder of the conversation; it may be removed while the chat is open."""
        self.model = ""
        """The model of the next turns; ``""``: the agent's model."""
        self.commands = self._make_commands()
        self._files: list[str] = []
        self._own_status = ""
        """The status line that the user's command prints."""
        self._follow_task: asyncio.Task[None] | None = None
        self._typed_inputs: set[str] = set()
        """The keys of inputs whose tool calls were typed here."""
        self._last_interrupt = -SECOND_INTERRUPT_SECONDS
        self._shown_card: tuple[CallId, int] | None = None
        """The last result when a result was shown whole, and the position of that result, counted from the last."""
        self._sent: dict[str, str] = {}
        """The typed texts of inputs that may wait, by key: their content may have attachments."""
        self._echoed: set[str] = set()
        """The keys of inputs that the terminal shows already, as lines that were typed."""
        self.screen = self._make_screen()
        settings.theme = "dark" if settings.theme == "auto" else settings.theme
        self.renderer = self._make_renderer()
        self.view = self._make_view()
        self.prompter = self._make_prompter()
        self._notifier = Notifier(settings.notify)

    def _make_commands(self) -> SlashCommands:
        return SlashCommands(self)

    def _make_screen(self) -> ChatScreen | PlainScreen:
        settings = self.settings
        if settings.plain:
            settings.theme = "none"
            return PlainScreen(submit=self.submit, interrupt=self.interrupt)
        return ChatScreen(
            take_back=self._take_back,
            has_queue=lambda: bool(self.view.queued),
            live_text=self._live_text,
            status=self._status,
            submit=self.submit,
            interrupt=self.interrupt,
            keys=(("s-tab", self._next_mode), ("c-o", self._show_result), ("c-t", self._show_reasoning)),
            completer=ChatCompleter(self.commands.help_texts, lambda: self._files),
            history=settings.history,
            color=settings.theme != "none",
            unicode=settings.unicode,
            output=settings.output,
            on_background=self.set_theme if settings.theme == "auto" else None,
        )

    def _make_prompter(self) -> DecisionPrompter:
        return DecisionPrompter(
            self.runtime, self.session.id, ChatPrompt(self), approves=self._approves, declared=self._declared
        )

    async def run(self, prompt: str = "", *, keys: str = "") -> int:
        """Converse until the user leaves; return the exit code. ``keys`` were typed before."""
        status = (self.settings.status.follow(self._describe, self._show_status),) if self.settings.status else ()
        tasks = [asyncio.create_task(work) for work in (self._tick(), self._list_files(), *status)]
        try:
            self.print_note(
                f"vaka {__version__} · {_short_folder(self._folder)} · {translate('/help lists commands and keys')}\n"
            )
            await self.show_session(self.session)
            if prompt:
                await self.submit(prompt)
            await self.screen.run(keys)
        finally:
            self.prompter.close()
            for task in (*tasks, *((self._follow_task,) if self._follow_task else ())):
                task.cancel()
            if self.view.busy and self.runtime.is_running(self.session.id):
                await self._leave_turn()
        await self.session.leave("prompt_input_exit")
        self._print_farewell()
        return 0

    async def _leave_turn(self) -> None:
        """Interrupt the turn, also if the hang-up of a closed terminal cancels the chat meanwhile."""
        request = asyncio.ensure_future(self.session.interrupt("the chat was left", by=current_user()))
        try:
            await asyncio.shield(request)
        except asyncio.CancelledError:
            await asyncio.wait([request])
            raise
        except VakaError:
            return

    def _print_farewell(self) -> None:
        """Print how to go on, if there is anything to go on with."""
        if self.view.turns:
            facts = [tokens_text(self.view.usage.total), format_cost(self.view.usage.cost)]
            self.print_note(" · ".join(fact for fact in facts if fact))
            self.print_note(translate("continue with: {command}", command=self._continue_command()))
            self.screen.flush()

    def _continue_command(self) -> str:
        return f"vaka chat --session {self.session.id}"

    async def show_session(self, session: Session) -> None:
        """Show the last events of a session and follow it from there."""
        if self._follow_task is not None:
            self._follow_task.cancel()
        self.prompter.close()
        self.session, self.view = session, self._make_view()
        self.prompter = self._make_prompter()
        info = await self.runtime.store.sessions.find(session.id)
        after = Cursor(0, 0)
        if info is not None:
            await self._show_tail(info)
            after = Cursor(info.epoch, info.head)
        self._follow_task = asyncio.create_task(self._follow(session.id, after))
        if info is not None and (info.turn or info.inputs) and not info.live:
            text = translate("this session has unfinished work; /resume continues it")
            self.screen.print(self.renderer.note(text, "warning"))
        if info is not None and info.pending:
            await self.prompter.load()

    async def _show_tail(self, info: SessionInfo) -> None:
        """Show the last events; what they do not tell comes from the index of sessions."""
        first = max(info.head - TAIL_EVENTS, 0)
        if first:
            self.print_note(translate("… {count} earlier events; /export writes all of them", count=first))
        async with aclosing(self.runtime.store.events.read(self.session.id, after=first, upto=info.head)) as events:
            async for event in events:
                self.screen.print(self.view.take(event))
        pending = await self.runtime.decisions(self.session.id) if info.pending else ()
        self.view.set_state(running=bool(info.turn) and info.live, pending={row.id: row.event for row in pending})

    async def submit(self, text: str) -> None:
        """Take what the user entered: a slash command, a command for the shell, a note, or a prompt."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                await self.commands.run(text[1:])
            elif text.startswith("!"):
                await self._call_tools(text, command_calls(text))
            elif text.startswith("#") and not text.startswith("##"):
                await self._add_note(text)
            else:
                await self._send(text)
        except (VakaError, click.ClickException, OSError) as error:
            self.print_error(describe_error(error).message)

    async def _send(self, text: str) -> None:
        files = attached_files(text, self._folder)
        content: UserInput = text
        if files:
            content = (Text(text=replace_surrogates(text)), *read_attachments([str(file) for file in files]))
        steers = self.view.busy and not self.view.runs_typed_calls and self.settings.busy == "steer"
        key = self.runtime.env.ids.new_id("inp") if self.settings.plain or self.view.busy else ""
        if key:
            self._note_sent(key, text)
        await self.session.send(content, on_busy="steer" if steers else "queue", model=self.model, key=key)

    def _note_sent(self, key: str, text: str) -> None:
        self._sent[key] = text
        if self.settings.plain:
            self._echoed.add(key)

    async def _call_tools(self, text: str, calls: Sequence[TypedCall]) -> None:
        """Make tool calls that the user typed, in a turn of their own: under the rules, in the sandbox, in the log."""
        names = {tool_name_of(tool) for tool in self.session.agent.tools}
        missing = next((call["name"] for call in calls if call["name"] not in names), None)
        if missing is not None or isinstance(self.session.agent, AgentKind):
            raise InvalidInput(f"the agent {self.session.agent.name!r} has no tool {missing or calls[0]['name']}")
        key = self.runtime.env.ids.new_id("inp")
        self._typed_inputs.add(key)
        self._note_sent(key, text)
        await self.session.send(text, key=key, model=GIVEN_CALLS, options={"calls": list(calls)})

    async def _take_back(self) -> None:
        """Withdraw the input that was queued last, and put its text into the input line."""
        key = next(reversed(self.view.queued), "")
        text = self._sent.get(key) or self.view.queued.get(key, "")
        try:
            withdrawn = bool(key) and await self.session.withdraw(key, by=current_user())
        except VakaError as error:
            self.print_error(describe_error(error).message)
            return
        if withdrawn and isinstance(self.screen, ChatScreen):
            self.screen.insert_text(text)

    async def _add_note(self, text: str) -> None:
        """Add a note to the memory file of the project; ask which one if there are both, or none."""
        files = memory_files(self._folder)
        name = files[0] if len(files) == 1 else await self._choose_memory_file(bool(files))
        if name:
            await self._call_tools(text, note_calls(text, Path(name)))

    async def _choose_memory_file(self, exists: bool) -> str:
        names = " · ".join(f"[{name[0].lower()}] {name}" for name in MEMORY_FILES)
        text = translate("Add the note to: {names} · Esc leaves", names=names)
        if not exists:
            text = translate("There is no memory file yet; create: {names} · Esc leaves", names=names)
        key = await self.screen.ask(self.renderer.panel(text), "ac")
        return next((name for name in MEMORY_FILES if key and name[0].lower() == key.lower()), "")

    def interrupt(self) -> bool:
        """Interrupt the running turn; return whether there was one. A second time soon after it, leave."""
        now = time.monotonic()
        twice, self._last_interrupt = now - self._last_interrupt < SECOND_INTERRUPT_SECONDS, now
        if self.view.busy and not twice:
            asyncio.ensure_future(self._interrupt_turn()).add_done_callback(lambda task: task.exception())
            return True
        return False

    async def _interrupt_turn(self) -> None:
        try:
            await self.session.interrupt("interrupted at the terminal", by=current_user())
        except VakaError as error:
            self.print_error(describe_error(error).message)

    def print_note(self, text: str) -> None:
        self.screen.print(self.renderer.note(text))

    def print_error(self, text: str) -> None:
        self.screen.print(self.renderer.note(f"error: {text}", "failed"))

    @property
    def model_name(self) -> str:
        """The model of the next turn, ``""`` if only the settings name it."""
        model = self.session.agent.model
        return self.model or self.view.model or (model if isinstance(model, str) else model.name if model else "")

    def set_theme(self, theme: str) -> None:
        self.settings.theme = theme
        self._resize(force=True)

    async def _follow(self, session: SessionId, after: Cursor) -> None:
        try:
            async with aclosing(self.runtime.follow(session, after=after)) as events:
                async for event in events:
                    self._resize()
                    started = self.view.turn_since
                    text = self.view.take(event)
                    self.screen.print(text if key_of(event.data) not in self._echoed else "")
                    self._notify(event, started)
                    self.prompter.take(event)
                    self.screen.redraw()
        except VakaError as error:
            self.print_error(describe_error(error).message)

    def _notify(self, event: Event, started: float | None) -> None:
        """Notify a person who looks elsewhere of a question, and of the end of a turn that took long."""
        ended = started is not None and self.view.turn_since is None
        away = not self.screen.focused
        if away and isinstance(event.data, ApprovalRequested | QuestionAsked) and not self._is_typed():
            self.screen.write_control(self._notifier.notify(translate("a question waits for your answer")))
        elif away and ended and time.monotonic() - (started or 0.0) >= self.settings.notify_after:
            self.screen.write_control(self._notifier.notify(translate("the turn has ended")))
        if ended and self.settings.plain:
            self.print_note("ready")

    def _approves(self, pending: PendingDecision) -> bool:
        """Whether a call needs no prompt: it was typed here, and typing it is the decision to run it."""
        return not pending.event.path and self._is_typed()

    def _is_typed(self) -> bool:
        """Whether the running turn makes calls that were typed here: typing a call is the decision to run it."""
        return not self._typed_inputs.isdisjoint(self.view.turn_inputs)

    @property
    def mode(self) -> str:
        """The permission mode in force."""
        return self.settings.find_mode() if self.settings.find_mode is not None else self.settings.mode

    def _next_mode(self) -> None:
        modes = MODES if self.mode in MODES else (self.mode, *MODES)
        self.change_mode(modes[(modes.index(self.mode) + 1) % len(modes)])

    def change_mode(self, mode: str) -> None:
        """Apply another permission mode from the next call on."""
        self.settings.set_mode(mode)
        self.settings.mode = mode
        self.screen.redraw()

    def _show_result(self) -> None:
        """Show the last result of a tool whole, and with each further key the previous result."""
        cards = self.view.cards
        if not cards:
            return
        last = cards[-1][1].result.call
        again = self._shown_card is not None and self._shown_card[0] == last
        back = min(self._shown_card[1] + 1, len(cards)) if again and self._shown_card is not None else 1
        self._shown_card = (last, back)
        call, body = cards[-back]
        self.screen.print(self.renderer.tool_call(call, body.result, full=True) + "\n")

    def _show_reasoning(self) -> None:
        """Show what the model thought before its last answer."""
        text = self.view.reasoning
        self.screen.print(
            self.renderer.note(text) + "\n" if text else self.renderer.note(translate("there is no reasoning"))
        )

    def _make_view(self) -> SessionView:
        return SessionView(self.renderer, live=not self.settings.plain)

    def _make_renderer(self) -> RichRenderer:
        return RichRenderer(
            self.screen.columns,
            theme=self.settings.theme,
            unicode=self.settings.unicode,
            declared=self._declared,
        )

    def _resize(self, *, force: bool = False) -> None:
        """Render for the present width of the terminal."""
        if force or self.screen.columns != self.renderer.width:
            self.renderer = self.view.renderer = self._make_renderer()

    async def _tick(self) -> None:
        """Redraw while a turn runs, for the spinner and the elapsed time."""
        while True:
            await asyncio.sleep(1.0 if self.view.pending else TICK_SECONDS)
            if self.view.busy:
                self.screen.redraw()

    async def _list_files(self) -> None:
        """List the files that completion offers."""
        files: Files | None = self.runtime.env.world.files
        if files is None:
            return
        found: list[str] = []
        with suppress(VakaError):
            async with aclosing(walk(files, "")) as entries:
                async for info in entries:
                    found.append(info.path)
                    if len(found) >= MAX_FILES:
                        break
        self._files = found

    def _live_text(self) -> str:
        self._resize()
        return self.view.live_text(translate("Esc interrupts"))

    def _show_status(self, text: str) -> None:
        self._own_status = text
        self.screen.redraw()

    def _describe(self) -> dict[str, Any]:
        """Return what the command of the status line reads, with the names that such commands expect."""
        folder = str(self._folder)
        return {
            "hook_event_name": "Status",
            "session_id": self.session.id,
            "cwd": folder,
            "version": __version__,
            "model": {"id": self.model_name, "display_name": self.model_name},
            "workspace": {"current_dir": folder, "project_dir": folder},
            "permission_mode": self.mode,
            "cost": {"total_cost_usd": self.view.usage.cost},
            "context_tokens": self.view.context_tokens,
        }

    def _status(self) -> AnyFormattedText:
        view, settings = self.view, self.settings
        name = self._folder.name
        model = self.model_name
        session = self.session.id
        cost = format_cost(view.usage.cost)
        tokens = format_tokens(view.context_tokens)
        context = translate("context {tokens}", tokens=tokens) if view.context_tokens else ""
        separator = " · " if settings.unicode else " - "
        badge = [] if self.mode == "default" else [("class:badge", f" {self.mode} "), ("", " ")]
        choices = [
            (_short_folder(self._folder), model, context, cost, session),
            (name, model, context, cost, session),
            (name, model, context, cost),
            (model, context),
            (model,),
        ]
        texts = [separator.join(as_printable(fact, lines=False) for fact in facts if fact) for facts in choices]
        room = self.screen.columns - sum(cell_len(text) for _, text in badge)
        if self._own_status:
            return [*badge, ("class:status", set_cell_size(self._own_status, room).rstrip())]
        return [*badge, ("class:status", next((text for text in texts if cell_len(text) <= room), texts[-1]))]


def _short_folder(path: Path) -> str:
    folder, home = str(path), str(Path.home())
    return f"~{folder[len(home) :]}" if folder == home or folder.startswith(f"{home}/") else folder
