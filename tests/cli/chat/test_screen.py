"""The bottom of the terminal without a terminal: how often it is drawn, and what is written at once."""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input

from vaka.cli.chat.screen import ChatScreen
from vaka.cli.chat.terminal import FrameOutput


class FrameStream(io.StringIO):
    """Calls a function with each piece of text that is written."""

    def __init__(self, on_write: Callable[[str], None]) -> None:
        super().__init__()
        self._on_write = on_write

    def write(self, text: str, /) -> int:
        self._on_write(text)
        return len(text)


class ScreenRun:
    """A screen that reads keys from a pipe; ``frames`` are what it writes, each in one piece."""

    def __init__(self, keys: PipeInput) -> None:
        self.keys = keys
        self.live = self.shown = ""
        self.live_calls = 0
        self.submitted: list[str] = []
        self.frames: list[str] = []
        self._changed = asyncio.Event()
        stream = FrameStream(self._write)
        self.screen = ChatScreen(
            live_text=self._live_text,
            status=lambda: "status",
            submit=self._submit,
            interrupt=lambda: False,
            input=keys,
            output=FrameOutput(stream, lambda: Size(rows=24, columns=60)),
        )

    async def wait_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_drawn(self, text: str) -> None:
        await self.wait_until(lambda: text in "".join(self.frames))

    def _write(self, text: str) -> None:
        self.frames.append(text)
        self._changed.set()

    def _live_text(self) -> str:
        self.live_calls += 1
        self.shown = self.live
        return self.live

    async def _submit(self, text: str) -> None:
        self.submitted.append(text)
        self._changed.set()


@asynccontextmanager
async def running_screen() -> AsyncGenerator[ScreenRun]:
    with create_pipe_input() as keys:
        run = ScreenRun(keys)
        task = asyncio.create_task(run.screen.run())
        await run.wait_drawn("status")
        try:
            yield run
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_many_changes_are_drawn_together() -> None:
    async with running_screen() as run:
        drawn, rendered = run.screen.app.render_counter, run.live_calls
        for number in range(2000):
            run.live = f"delta {number}"
            run.screen.redraw()
            if not number % 10:
                await asyncio.sleep(0)
        await run.wait_until(lambda: run.shown == "delta 1999")
        assert run.screen.app.render_counter - drawn <= 100
        assert run.live_calls - rendered <= 100


async def test_a_key_is_drawn_without_rendering_again_what_is_running() -> None:
    async with running_screen() as run:
        run.live = "running"
        run.screen.redraw()
        await run.wait_drawn("running")
        rendered = run.live_calls
        run.keys.send_text("Q")
        await run.wait_drawn("Q")
        assert run.live_calls == rendered


async def test_printed_text_and_the_lines_below_it_are_written_at_once() -> None:
    async with running_screen() as run:
        run.screen.print("printed\n")
        run.screen.print("more\n")
        await run.wait_drawn("printed")
        frame = next(frame for frame in run.frames if "printed" in frame)
        assert "printed\r\nmore\r\n" in frame
        assert "status" in frame.partition("printed")[2]


async def test_enter_sends_while_text_is_printed() -> None:
    async with running_screen() as run:
        run.screen.print("printed\n")
        run.keys.send_text("hello\r")
        run.screen.print("more\n")
        await run.wait_until(lambda: run.submitted)
        assert run.submitted == ["hello"]


async def test_of_a_question_that_does_not_fit_the_beginning_is_printed_and_the_choices_stay() -> None:
    async with running_screen() as run:
        question = "\n".join([*(f"line {n}" for n in range(100)), "[y] [n]"])
        asked = asyncio.create_task(run.screen.ask(lambda: question, "yn"))
        await run.wait_drawn("[y] [n]")
        written = "".join(run.frames)
        assert [n for n in range(100) if f"line {n}" not in written] == []
        run.keys.send_text("y")
        assert await asked == "y"


async def test_the_lines_of_a_closed_menu_or_question_are_given_back() -> None:
    async with running_screen() as run:
        asked = asyncio.create_task(run.screen.ask("\n".join("abcdefgh") + "\n[y]?", "y"))
        await run.wait_drawn("[y]?")
        run.keys.send_text("y")
        await asked
        run.keys.send_text("Q")
        await run.wait_drawn("Q")
        screen = run.screen.app.renderer.last_rendered_screen
        assert screen is not None
        assert screen.height == 3


async def test_the_letters_of_a_prompt_that_is_being_typed_do_not_answer_a_question() -> None:
    async with running_screen() as run:
        run.keys.send_text("show me ")
        await run.wait_drawn("me")
        asked = asyncio.create_task(run.screen.ask("Approve? [y] [s]", "ys"))
        await run.wait_drawn("[y] [s]")
        run.keys.send_text("yes\r")
        await run.wait_until(lambda: run.submitted)
        run.keys.send_text("why so?\r")
        await run.wait_until(lambda: len(run.submitted) == 2)
        assert run.submitted == ["show me yes", "why so?"]
        assert not asked.done()
        run.keys.send_text("y")
        assert await asked == "y"
