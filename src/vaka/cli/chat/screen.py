"""The bottom of the terminal: what is running, an open question, the input and a status line.

Everything above is ordinary scroll-back: text is printed there once and never drawn again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.filters import Condition, FilterOrBool, has_completions
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

MAX_LIVE_LINES = 16
"""Lines that show what is running."""
MAX_INPUT_LINES = 10
REDRAW_INTERVAL = 0.03
"""Seconds between two redraws at least."""
ESCAPE_SECONDS = 0.05
"""Seconds after which a lone escape byte is the Escape key, not the beginning of a sequence."""

_STYLES = Style.from_dict({
    "rule": "ansibrightblack", "status": "ansibrightblack", "prompt": "ansicyan bold", "badge": "reverse",
    "completion-menu": "noinherit", "completion-menu.completion.current": "reverse", "question": "bold",
})  # fmt: skip


class ScreenQuestion:
    """A question in place of the input; single keys in ``keys`` answer it at once."""

    def __init__(self, prompt: str, keys: str) -> None:
        self.prompt, self.keys = prompt, keys
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

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
        keys: Sequence[tuple[str, Callable[[], None]]] = (),
        completer: Completer | None = None,
        history: Path | None = None,
        color: bool = True,
        unicode: bool = True,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._live_text, self._submit, self._interrupt = live_text, submit, interrupt
        self._printed: list[str] = []
        self._print_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._question: ScreenQuestion | None = None
        self._draft = ""
        self.buffer = Buffer(
            multiline=True, history=_open_history(history), complete_while_typing=Condition(self._is_completing),
            completer=ThreadedCompleter(completer) if completer is not None else None,
        )  # fmt: skip
        self._rule = "─" if unicode else "-"
        self._sign = "❯ " if unicode else "> "
        self.app: Application[None] = Application(
            layout=self._layout(status), key_bindings=self._bindings(keys), style=_STYLES if color else None,
            min_redraw_interval=REDRAW_INTERVAL, mouse_support=False, full_screen=False, erase_when_done=True,
            input=input, output=output,
        )  # fmt: skip
        self.app.ttimeoutlen = ESCAPE_SECONDS
        self.app.timeoutlen = ESCAPE_SECONDS * 4

    async def run(self) -> None:
        """Read keys until ``exit``."""
        self._write_printed()
        try:
            await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            for task in self._tasks:
                task.cancel()
            self.flush()

    def exit(self) -> None:
        if self.app.is_running:
            self.app.exit()

    def print(self, text: str) -> None:
        """Print text above; it may be several lines and ends with a line end."""
        if not text:
            return
        self._printed.append(text)
        if self._print_task is None or self._print_task.done():
            self._print_task = asyncio.get_running_loop().create_task(self._print_above())

    def flush(self) -> None:
        """Print what is waiting to be printed, after ``run``."""
        self._write_printed()

    def redraw(self) -> None:
        self.app.invalidate()

    async def ask(self, prompt: str, keys: str = "") -> str | None:
        """Ask in place of the input; ``None`` when the user leaves the question with Escape."""
        question = self._question = ScreenQuestion(prompt, keys)
        self._draft, self.buffer.text = self.buffer.text, ""
        self.redraw()
        try:
            return await question.answer
        finally:
            self._question = None
            self.buffer.text, self._draft = self._draft, ""
            self.buffer.cursor_position = len(self.buffer.text)
            self.redraw()

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self.app.output.get_size().columns

    @property
    def asking(self) -> bool:
        return self._question is not None

    async def _print_above(self) -> None:
        while self._printed and self.app.is_running:
            async with in_terminal():
                self._write_printed()

    def _write_printed(self) -> None:
        text, self._printed = "".join(self._printed), []
        if text:
            self.app.output.write_raw(text.replace("\n", "\r\n"))
            self.app.output.flush()

    def _is_completing(self) -> bool:
        return self._question is None and (self.buffer.text.startswith("/") or "@" in self.buffer.text)

    def _layout(self, status: Callable[[], AnyFormattedText]) -> Layout:
        live = ConditionalContainer(
            Window(FormattedTextControl(self._limited_live), dont_extend_height=True, wrap_lines=False),
            filter=Condition(lambda: bool(self._live_text())),
        )
        question = ConditionalContainer(
            Window(FormattedTextControl(self._question_text), dont_extend_height=True, wrap_lines=True),
            filter=Condition(lambda: self._question is not None),
        )
        entry = Window(
            BufferControl(self.buffer, input_processors=[BeforeInput(self._sign_text)]), wrap_lines=True,
            height=Dimension(min=1, max=MAX_INPUT_LINES), dont_extend_height=True,
        )  # fmt: skip
        bottom = Window(FormattedTextControl(status), height=1, style="class:status")
        rule = Window(height=1, char=self._rule, style="class:rule")
        body = HSplit([live, rule, question, entry, bottom])
        menu = Float(xcursor=True, ycursor=True, content=CompletionsMenu(max_height=8, scroll_offset=1))
        return Layout(FloatContainer(body, floats=[menu]), focused_element=entry)

    def _sign_text(self) -> AnyFormattedText:
        return [("class:prompt", self._sign)]

    def _question_text(self) -> AnyFormattedText:
        return ANSI(self._question.prompt) if self._question is not None else ""

    def _limited_live(self) -> AnyFormattedText:
        lines = self._live_text().rstrip("\n").split("\n")
        room = max(min(MAX_LIVE_LINES, self.app.output.get_size().rows - 8), 1)
        return ANSI("\n".join(lines[-room:]))

    def _bindings(self, more: Sequence[tuple[str, Callable[[], None]]]) -> KeyBindings:
        bindings = KeyBindings()
        asking = Condition(lambda: self._question is not None)
        empty = Condition(lambda: not self.buffer.text)
        bindings.add("enter", filter=~asking & ~has_completions)(self._on_enter)
        bindings.add("enter", filter=~asking & has_completions)(self._on_accept_completion)
        bindings.add("enter", filter=asking)(self._on_answer)
        bindings.add(Keys.Any, filter=asking & empty)(self._on_answer_key)
        actions: list[tuple[tuple[str, ...], Callable[[], object], FilterOrBool]] = [
            (("escape", "enter"), self._insert_line_end, True), (("c-j",), self._insert_line_end, True),
            (("escape",), self._leave_question, asking), (("escape",), self._on_escape, ~asking),
            (("c-c",), self._on_interrupt, True), (("c-d",), self.exit, empty),
            (("c-l",), lambda: self.app.renderer.clear(), True),
            (("c-z",), lambda: self.app.suspend_to_background(), True),
            *(((key,), action, True) for key, action in more),
        ]  # fmt: skip
        for keys, action, condition in actions:
            bindings.add(*keys, filter=condition)(_ignore_event(action))
        return bindings

    def _insert_line_end(self) -> None:
        self.buffer.insert_text("\n")

    def _on_enter(self, event: KeyPressEvent) -> None:
        text = self.buffer.text
        if text.endswith("\\"):  # a backslash at the end continues on the next line
            self.buffer.text = text[:-1] + "\n"
            self.buffer.cursor_position = len(self.buffer.text)
            return
        if text.strip():
            self.buffer.append_to_history()
            self.buffer.reset()
            self._start(self._submit(text))

    def _on_accept_completion(self, event: KeyPressEvent) -> None:
        state = self.buffer.complete_state
        if state is not None and state.current_completion is not None:
            self.buffer.apply_completion(state.current_completion)
            return
        self.buffer.cancel_completion()
        self._on_enter(event)

    def _on_answer(self, event: KeyPressEvent) -> None:
        if self._question is not None:
            self._question.resolve(self.buffer.text)

    def _on_answer_key(self, event: KeyPressEvent) -> None:
        question = self._question
        if question is not None and event.data in question.keys and event.data:
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
