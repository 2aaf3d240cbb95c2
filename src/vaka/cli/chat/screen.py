"""The bottom of the terminal: what is running, an open question, the input and a status line.

Everything above is ordinary scroll-back: text is printed there once and never drawn again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, FilterOrBool, has_completions
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from vaka.cli.chat.pasted_text import PastedTexts, VisibleInput, clean_paste
from vaka.cli.chat.terminal import FrameApplication, JobControl
from vaka.cli.chat.terminal_reports import TerminalReports

MAX_LIVE_LINES = 16
"""Lines that show what is running."""
MAX_ASKING_LINES = 8
"""Lines that are shown with a question: the end of what is running, a rule, the input and the status."""
MAX_INPUT_LINES = 10
MAX_MENU_LINES = 8
REFRESH_INTERVAL = 0.05
"""Seconds between two refreshes of what is running, at least. Keys are drawn at once."""
REFRESH_COST = 12
"""How many times the duration of a refresh passes before the next one."""
ACTION_KEYS = ("up", "down", "pageup", "pagedown", "tab", "delete", "c-x")
"""Keys that a question may give a meaning of its own."""
PASTE_SECONDS = 0.2
"""Seconds in which the rest of such a paste arrives."""
ESCAPE_SECONDS = 0.05
"""Seconds after which a lone escape byte is the Escape key, not the beginning of a sequence."""

_FLUSH_KEY = "?"
"""The key that prompt_toolkit adds to its queue to process what it holds back."""

_STYLES = Style.from_dict(
    {
        "rule": "ansibrightblack",
        "status": "ansibrightblack",
        "prompt": "ansicyan bold",
        "badge": "reverse",
        "completion-menu": "noinherit",
        "completion-menu.completion.current": "reverse",
        "question": "bold",
    }
)


QuestionActions: TypeAlias = Mapping[str, Callable[[], None]]
"""Functions by key of ``ACTION_KEYS``, called while a question is open."""


class ScreenQuestion:
    """A question in place of the input; single keys in ``keys`` answer it at once, keys in ``actions`` act."""

    def __init__(self, prompt: Callable[[], str], keys: str, actions: QuestionActions) -> None:
        self.prompt = prompt
        self.keys = keys
        self.actions = actions
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.is_typing = False
        """Whether the input is a prompt that was begun before the question: its letters are not answers."""

    def resolve(self, text: str | None) -> None:
        if not self.answer.done():
            self.answer.set_result(text)


class ChatScreen:
    """Draws the bottom lines and reads keys; the texts come from callbacks."""

    def __init__(  # noqa: PLR0913  # each callback is a part of the screen
        self,
        *,
        live_text: Callable[[], str],
        status: Callable[[], AnyFormattedText],
        submit: Callable[[str], Awaitable[None]],
        interrupt: Callable[[], bool],
        take_back: Callable[[], Awaitable[None]] | None = None,
        has_queue: Callable[[], bool] = lambda: False,
        keys: Sequence[tuple[str, Callable[[], None]]] = (),
        completer: Completer | None = None,
        history: Path | None = None,
        color: bool = True,
        unicode: bool = True,
        input: Input | None = None,
        output: Output | None = None,
        on_background: Callable[[str], None] | None = None,
    ) -> None:
        """Draw on ``output``; ``on_background`` is called with the theme that fits the background of the terminal.

        In an empty input, the Up key calls ``take_back`` while ``has_queue``.
        """
        self._take_back = take_back
        self._reports = TerminalReports(self.write_control, on_background)
        self._live_text = live_text
        self._submit = submit
        self._interrupt = interrupt
        self._live: AnyFormattedText = ""
        self._live_height = 0
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._next_refresh = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._question: ScreenQuestion | None = None
        self._question_lock = asyncio.Lock()
        self._pasted = PastedTexts()
        self._pasting_until = 0.0
        """Until when Enter belongs to a paste that contained the sequence of its own end."""
        self.buffer = Buffer(
            multiline=True,
            history=_open_history(history),
            complete_while_typing=Condition(self._is_completing),
            completer=ThreadedCompleter(completer) if completer is not None else None,
            tempfile_suffix=".md",
        )
        self._rule = "─" if unicode else "-"
        self._sign = "❯ " if unicode else "> "
        self.app = FrameApplication(
            self._update_live,
            layout=self._layout(status),
            key_bindings=self._bindings(keys, has_queue),
            style=_STYLES if color else None,
            max_render_postpone_time=None,
            mouse_support=False,
            full_screen=False,
            erase_when_done=True,
            input=input,
            output=output,
        )
        self._job = JobControl(self.app, self._reports.report_focus)
        self.app.ttimeoutlen = ESCAPE_SECONDS
        self.app.timeoutlen = ESCAPE_SECONDS * 4

    async def run(self, keys: str = "") -> None:
        """Read keys until ``exit`` or until the terminal is closed, first those that were typed before."""
        self.app.write_printed()
        pressed: list[KeyPress] = []
        Vt100Parser(pressed.append).feed_and_flush(keys)
        store_typeahead(self.app.input, pressed)
        self._reports.start(self.app.input)
        try:
            with self._job, suppress(EOFError):
                await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._refresh_timer is not None:
                self._refresh_timer.cancel()
            self._reports.report_focus(False)
            self.flush()

    def write_control(self, sequence: str) -> None:
        """Write a sequence that draws nothing."""
        if sequence:
            self.app.output.write_raw(sequence)
            self.app.output.flush()

    @property
    def focused(self) -> bool | None:
        """Whether the terminal has the focus, ``None`` if it has not reported it."""
        return self._reports.focused

    def exit(self) -> None:
        if self.app.is_running:
            self.app.exit()

    def print(self, text: str) -> None:
        """Print text above; it may be several lines and ends with a line end."""
        if text:
            self.app.printed.append(text)
            self.redraw()

    def flush(self) -> None:
        """Print what is waiting to be printed, after ``run``."""
        self.app.write_printed()

    def redraw(self) -> None:
        """Draw what is running soon: many calls make one refresh, and refreshes take a bounded share of the time."""
        if self._refresh_timer is None and self.app.is_running:
            wait = max(self._next_refresh - time.monotonic(), 0)
            self._refresh_timer = asyncio.get_running_loop().call_later(wait, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        begun = time.monotonic()
        self._update_live()
        taken = time.monotonic() - begun + self.app.frame_seconds
        self._next_refresh = begun + max(REFRESH_INTERVAL, REFRESH_COST * taken)
        self.app.invalidate()

    def _update_live(self) -> None:
        lines = self._live_text().rstrip("\n").split("\n")
        room = max(min(MAX_LIVE_LINES, self.rows - 8), 1) if self._question is None else 3
        self._live_height = len(lines[-room:]) if lines != [""] else 0
        self._live = to_formatted_text(ANSI("\n".join(lines[-room:])))

    async def ask(
        self,
        prompt: str | Callable[[], str],
        keys: str = "",
        *,
        actions: QuestionActions | None = None,
        on_text: Callable[[str], None] | None = None,
        text: str = "",
    ) -> str | None:
        """Ask in place of the input, one question at a time; ``None`` when the user leaves it with Escape.

        Args:
            prompt: The question, or a function that returns it each time it is drawn.
            keys: Keys that are the answer by themselves, in an empty input.
            actions: What keys of ``ACTION_KEYS`` do while the question is open.
            on_text: Called with the input after each change.
            text: The input at the beginning.
        """
        async with self._question_lock:
            shown = prompt if callable(prompt) else partial(str, prompt)
            beginning, _ = self._split_question(shown())
            self.print("\n".join([*beginning, ""]) if beginning else "")
            return await self._ask(ScreenQuestion(shown, keys, actions or {}), on_text, text)

    def _split_question(self, text: str) -> tuple[list[str], list[str]]:
        """Return the lines of a question that do not fit the terminal, and the rest, which has its choices."""
        lines = text.split("\n")
        fit = max(len(lines) - max(self.rows - MAX_ASKING_LINES, 4), 0)
        return lines[:fit], lines[fit:]

    async def _ask(self, question: ScreenQuestion, on_text: Callable[[str], None] | None, text: str) -> str | None:
        draft, self._question = self.buffer.document, question
        question.is_typing = bool(question.keys and draft.text)
        if not question.is_typing:
            self.buffer.document = Document(text)

        def notify(buffer: Buffer) -> None:
            if on_text is not None:
                on_text(buffer.text)

        self.buffer.on_text_changed += notify
        self.redraw()
        try:
            return await question.answer
        finally:
            self._question = None
            self.buffer.on_text_changed -= notify
            if not question.is_typing:
                self.buffer.document = draft
            self.redraw()

    def answer(self, text: str) -> None:
        """Answer the open question, for an action of it."""
        if self._question is not None:
            self._question.resolve(text)

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self.app.output.get_size().columns

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        return self.app.output.get_size().rows

    @property
    def asking(self) -> bool:
        return self._question is not None

    def _is_completing(self) -> bool:
        return self._question is None and (self.buffer.text.startswith("/") or "@" in self.buffer.text)

    def _layout(self, status: Callable[[], AnyFormattedText]) -> Layout:
        live = ConditionalContainer(
            Window(FormattedTextControl(lambda: self._live), height=lambda: self._live_height, wrap_lines=False),
            filter=Condition(lambda: self._live_height > 0),
        )
        question = ConditionalContainer(
            Window(FormattedTextControl(self._question_text), dont_extend_height=True, wrap_lines=True),
            filter=Condition(lambda: self._question is not None),
        )
        entry = Window(
            BufferControl(self.buffer, input_processors=[VisibleInput("?"), BeforeInput(self._sign_text)]),
            wrap_lines=True,
            height=Dimension(min=1, max=MAX_INPUT_LINES),
            dont_extend_height=True,
        )
        bottom = Window(FormattedTextControl(status), height=1, style="class:status")
        rule = Window(height=1, char=self._rule, style="class:rule")
        menu = CompletionsMenu(max_height=MAX_MENU_LINES, scroll_offset=1)
        return Layout(HSplit([live, rule, question, entry, menu, bottom]), focused_element=entry)

    def _sign_text(self) -> AnyFormattedText:
        return [("class:prompt", self._sign)]

    def _question_text(self) -> AnyFormattedText:
        return ANSI("\n".join(self._split_question(self._question.prompt())[1])) if self._question is not None else ""

    def _bindings(self, more: Sequence[tuple[str, Callable[[], None]]], has_queue: Callable[[], bool]) -> KeyBindings:
        bindings = KeyBindings()
        asking = Condition(lambda: self._question is not None)
        empty = Condition(lambda: not self.buffer.text)
        bindings.add("enter", filter=~asking & ~has_completions)(self._on_enter)
        bindings.add("enter", filter=~asking & has_completions)(self._on_accept_completion)
        bindings.add("enter", filter=asking)(self._on_answer)
        bindings.add(Keys.Any, filter=asking & empty)(self._on_answer_key)
        queued = Condition(lambda: has_queue() and self._take_back is not None)
        bindings.add("up", filter=~asking & empty & queued)(self._on_take_back)
        bindings.add(Keys.Ignore)(self._on_report)
        bindings.add(Keys.BracketedPaste)(self._on_paste)
        after_label = Condition(lambda: bool(self._pasted.label_before(self.buffer.document.text_before_cursor)))
        actions: list[tuple[tuple[str, ...], Callable[[], object], FilterOrBool]] = [
            (("escape", "enter"), self._insert_line_end, True),
            (("c-j",), self._insert_line_end, True),
            (("escape",), self._leave_question, asking),
            (("escape",), self._on_escape, ~asking),
            (("c-g",), self._edit_outside, ~asking),
            (("backspace",), self._delete_label, ~asking & after_label),
            (("c-c",), self._on_interrupt, True),
            (("c-d",), self.exit, empty),
            (("c-l",), lambda: self.app.renderer.clear(), True),
            (("c-z",), lambda: self._job.suspend(), True),
            *(((key,), action, True) for key, action in more),
        ]
        for key in ACTION_KEYS:
            bindings.add(key, filter=Condition(partial(self._has_action, key)), eager=True)(
                partial(self._on_action, key)
            )
        for keys, action, condition in actions:
            bindings.add(*keys, filter=condition)(_ignore_event(action))
        return bindings

    def _insert_line_end(self) -> None:
        self.buffer.insert_text("\n")

    def _on_report(self, event: KeyPressEvent) -> None:
        self._reports.take_key(event.data)

    def _on_take_back(self, event: KeyPressEvent) -> None:
        if self._take_back is not None:
            self._start(self._take_back())

    def insert_text(self, text: str) -> None:
        """Put text before what the input has."""
        self.buffer.document = Document(text + self.buffer.text, len(text))

    def _on_paste(self, event: KeyPressEvent) -> None:
        """Insert a paste, a long one folded.

        A paste that contains the sequence of its own end is followed by the rest of it as if it was typed. What
        arrived in one piece with its end is therefore pasted as well, unless it is a single key.
        """
        text, queue = event.data, event.app.key_processor.input_queue
        if len(queue) > 1:
            text += "".join(press.data for press in queue if press.key != _FLUSH_KEY)
            queue.clear()
            self._pasting_until = time.monotonic() + PASTE_SECONDS
        text = clean_paste(text)
        self.buffer.insert_text(self._pasted.fold(text) if self._question is None else text)

    def _delete_label(self) -> None:
        label = self._pasted.label_before(self.buffer.document.text_before_cursor)
        self.buffer.delete_before_cursor(len(label))

    def _edit_outside(self) -> None:
        """Edit the input, with pasted texts unfolded, in the editor of the user."""
        self.buffer.text = self._pasted.expand(self.buffer.text)
        self._tasks.add(task := self.buffer.open_in_editor())
        task.add_done_callback(self._tasks.discard)

    def _on_enter(self, event: KeyPressEvent) -> None:
        text = self.buffer.text
        if time.monotonic() < self._pasting_until:  # the rest of a paste
            self._pasting_until = time.monotonic() + PASTE_SECONDS
            self._insert_line_end()
            return
        if text.endswith("\\"):  # a backslash at the end continues on the next line
            self.buffer.text = text[:-1] + "\n"
            self.buffer.cursor_position = len(self.buffer.text)
            return
        if text.strip():
            self.buffer.text = text = self._pasted.expand(text)
            self.buffer.append_to_history()
            self.buffer.reset()
            self._pasted.clear()
            self._start(self._submit(text))

    def _on_accept_completion(self, event: KeyPressEvent) -> None:
        state = self.buffer.complete_state
        if state is not None and state.current_completion is not None:
            self.buffer.apply_completion(state.current_completion)
            return
        self.buffer.cancel_completion()
        self._on_enter(event)

    def _has_action(self, key: str) -> bool:
        return self._question is not None and key in self._question.actions

    def _on_action(self, key: str, event: KeyPressEvent) -> None:
        if self._question is not None:
            self._question.actions[key]()

    def _on_answer(self, event: KeyPressEvent) -> None:
        """Answer with the input. Words in answer to a question about keys are a prompt, and the question stays."""
        question, text = self._question, self.buffer.text
        first = text.strip().partition(" ")[0].lower()
        if question is None:
            return
        if not question.is_typing and (not question.keys or (len(first) < 2 and first in question.keys)):
            question.resolve(text)
            return
        question.is_typing = False
        self._on_enter(event)

    def _on_answer_key(self, event: KeyPressEvent) -> None:
        question = self._question
        if question is not None and len(event.data) == 1 and event.data in question.keys:
            question.resolve(event.data)
        elif event.data.isprintable():
            event.current_buffer.insert_text(event.data)

    def _leave_question(self) -> None:
        if self._question is not None:
            self._question.resolve(None)

    def _on_escape(self) -> None:
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        else:
            self._interrupt()

    def _on_interrupt(self) -> None:
        """Clear the input; if it is empty, interrupt the turn; if none runs, leave."""
        if self._question is not None:
            self._leave_question()
        elif self.buffer.text:
            self.buffer.reset()
        elif not self._interrupt():
            self.exit()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ignore_event(action: Callable[[], object]) -> Callable[[KeyPressEvent], None]:
    def call(event: KeyPressEvent) -> None:
        action()

    return call


def _open_history(file: Path | None) -> History:
    return FileHistory(str(file)) if file is not None else InMemoryHistory()
