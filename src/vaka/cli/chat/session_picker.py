"""The list of sessions from which a person chooses one: filtered by what is typed, read page by page."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import lru_cache
from pathlib import Path

import msgspec
from rich.cells import cell_len, set_cell_size

from vaka.cli.chat.plain_screen import PlainScreen
from vaka.cli.chat.screen import ChatScreen
from vaka.cli.chat.terminal import open_output
from vaka.cli.display.plain_renderer import format_cost
from vaka.cli.kit.errors import describe_error
from vaka.cli.kit.render import as_printable, format_age, shorten
from vaka.cli.strings import translate
from vaka.cli.turn.session_record import is_of_project, project_query
from vaka.config.settings import trust_root_of
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import text_of
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import GIVEN_CALLS, MessageCompleted, TurnStarted
from vaka.runtime.session_edits import delete_session

PAGE_SIZE = 50
MAX_ROWS = 12
"""Sessions that are shown at once."""
MAX_READ_EVENTS = 2000
"""Events of a session that are read for its turns, cost and preview: the last ones."""
DELETE = "delete"
"""The answer of the key that deletes a session."""


class SessionDetails(msgspec.Struct, frozen=True):
    """Details of a session from its log; ``complete`` unless only its last events were read."""

    turns: int = 0
    cost: float = 0.0
    preview: str = ""
    complete: bool = True

    @property
    def facts(self) -> str:
        more = "" if self.complete else "+"
        several = translate("{count} turns", count=f"{self.turns}{more}")
        turns = translate("1 turn") if self.turns == 1 and not more else several
        return " · ".join(fact for fact in (turns, f"{format_cost(self.cost)}{more}" if self.cost else "") if fact)


async def read_details(store: Store, info: SessionInfo) -> SessionDetails:
    """Return the turns, the cost and the last answer of a session."""
    turns = 0
    cost = 0.0
    preview = ""
    first = max(info.head - MAX_READ_EVENTS, 0)
    async with aclosing(store.events.read(info.id, after=first, upto=info.head)) as events:
        async for event in events:
            match event.data:
                case TurnStarted() if not event.path:
                    turns += 1
                case UsageRecorded(usage=usage):
                    cost += usage.cost
                case MessageCompleted(content=content, model=model) if not event.path and model != GIVEN_CALLS:
                    preview = text_of(content) or preview
                case _:
                    pass
    return SessionDetails(turns, cost, shorten(preview, 400), not first)


class SessionPicker:
    """Lists the sessions of a project, or of all, the last changed first; a page is read when it is needed."""

    def __init__(
        self,
        store: Store,
        screen: ChatScreen | PlainScreen,
        *,
        current: str = "",
        everywhere: bool = False,
        unicode: bool = True,
    ) -> None:
        self._store = store
        self._screen = screen
        self._current = current
        self._unicode = unicode
        self._project: Path | None = None if everywhere else trust_root_of(Path.cwd())
        self._is_of_project = lru_cache(maxsize=1000)(self._check_project)
        self._text = ""
        self._rows: list[SessionInfo] = []
        self._details: dict[tuple[SessionId, int], SessionDetails] = {}
        self._selected = self._first = 0
        self._next: str | None = ""
        """The cursor of the next page, ``None`` after the last one."""
        self._loading: asyncio.Task[None] | None = None
        self._message = ""

    async def choose(self, text: str = "") -> SessionInfo | None:
        """Let the user choose a session; ``None`` when they leave the list."""
        self._text = text
        if isinstance(self._screen, PlainScreen):
            return await self._choose_by_number(self._screen)
        return await self._choose_from_list(self._screen)

    async def _choose_by_number(self, screen: PlainScreen) -> SessionInfo | None:
        await self._read()
        shown = self._rows[:MAX_ROWS]
        lines = [f"{number}. {self._row(info)}" for number, info in enumerate(shown, start=1)]
        if not lines:
            screen.print(translate("there are no sessions") + "\n")
            return None
        question = "\n".join([*lines, translate("Number of the session, or an empty line to leave:")])
        answer = (await screen.ask(question) or "").strip()
        return shown[int(answer) - 1] if answer.isdigit() and 0 < int(answer) <= len(shown) else None

    async def _choose_from_list(self, screen: ChatScreen) -> SessionInfo | None:
        self._restart()
        actions: dict[str, Callable[[], None]] = {
            "up": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "pageup": lambda: self._move(-MAX_ROWS),
            "pagedown": lambda: self._move(MAX_ROWS),
            "tab": self._toggle_project,
            "delete": lambda: screen.answer(DELETE),
            "c-x": lambda: screen.answer(DELETE),
        }
        try:
            while True:
                answer = await screen.ask(
                    lambda: self._render(screen.rows), actions=actions, on_text=self._filter, text=self._text
                )
                if answer is None:
                    return None
                if not self._rows and self._loading is not None:  # the list is not read yet
                    await asyncio.wait([self._loading])
                if answer == DELETE:
                    await self._delete()
                elif self._rows:
                    return self._rows[self._selected]
        finally:
            self._stop_loading()

    async def _delete(self) -> None:
        """Delete the selected session once the user confirms it."""
        if not self._rows:
            return
        info = self._rows[self._selected]
        if info.id == self._current:
            self._message = translate("this session is open; /clear begins another one")
            return
        question = (
            translate("Delete {title} ({id}) for good? [y] yes · [n] no", title=repr(_title_of(info)), id=info.id)
            + " > "
        )
        if await self._screen.ask(question, "yn") != "y":
            return
        try:
            await delete_session(self._store, info.id)
        except VakaError as error:
            self._message = describe_error(error).message
            return
        self._rows.remove(info)
        self._message = translate("{id} is deleted", id=info.id)
        self._move(0)

    def _filter(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self._restart()

    def _toggle_project(self) -> None:
        self._project = trust_root_of(Path.cwd()) if self._project is None else None
        self._is_of_project.cache_clear()
        self._restart()

    def _restart(self) -> None:
        self._stop_loading()
        self._rows = []
        self._selected = 0
        self._first = 0
        self._next = ""
        self._message = ""
        self._load()

    def _move(self, count: int) -> None:
        self._selected = max(min(self._selected + count, len(self._rows) - 1), 0)
        self._load()
        self._screen.redraw()

    def _load(self) -> None:
        """Read the next page if the list comes to its end, and the details of the sessions that are shown."""
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._read())
            self._loading.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    async def _read(self) -> None:
        try:
            while True:
                if self._next is not None and self._selected + 2 * MAX_ROWS >= len(self._rows):
                    await self._read_page(self._next)
                elif (info := self._without_details()) is not None:
                    self._details[info.id, info.head] = await self._read_details(info)
                else:
                    return
                self._screen.redraw()
        except VakaError as error:
            self._message = describe_error(error).message
            self._screen.redraw()

    async def _read_details(self, info: SessionInfo) -> SessionDetails:
        try:
            return await read_details(self._store, info)
        except VakaError as error:  # a log that cannot be read; the others can
            return SessionDetails(preview=describe_error(error).message, complete=False)

    async def _read_page(self, after: str) -> None:
        query = project_query(self._project, text=self._text, limit=PAGE_SIZE, after=after)
        page = await self._store.sessions.list(query)
        self._rows += [info for info in page.sessions if not info.id.startswith("_") and self._is_listed(info)]
        self._next = page.next or None

    def _is_listed(self, info: SessionInfo) -> bool:
        return not info.erased and (self._project is None or self._is_of_project(info.folder))

    def _check_project(self, folder: str) -> bool:
        return is_of_project(SessionInfo(id=SessionId(""), folder=folder), self._project)

    def _without_details(self) -> SessionInfo | None:
        shown = self._rows[self._first : self._first + MAX_ROWS]
        selected = self._rows[self._selected : self._selected + 1]
        return next((info for info in (*selected, *shown) if (info.id, info.head) not in self._details), None)

    def _render(self, height: int) -> str:
        width = max(self._screen.columns - 1, 10)
        rows = max(min(MAX_ROWS, height - 9), 1)
        self._first = min(max(self._first, self._selected - rows + 1), self._selected)
        if self._without_details() is not None:  # other sessions are shown now
            self._load()
        lines = [self._heading()]
        for number, info in enumerate(self._rows[self._first : self._first + rows], start=self._first):
            sign = "❯ " if number == self._selected else "  "
            lines.append(f"{sign}{self._row(info, width - len(sign))}")
            details = self._details.get((info.id, info.head))
            if number == self._selected and details is not None and details.preview:
                lines.append(f"    {details.preview}")
        if not self._rows:
            lines.append("  …" if self._next is not None else f"  {translate('there are no sessions')}")
        more = self._next is not None or len(self._rows) > self._first + rows
        lines.append("  …" if more and self._rows else "")
        other = translate("this project") if self._project is None else translate("all projects")
        lines += [self._message] if self._message else []
        lines.append(translate("type to filter · Enter opens · Tab {other} · Del deletes · Esc leaves", other=other))
        text = "\n".join(_fit(as_printable(line, lines=False), width) for line in lines if line)
        return text if self._unicode else text.translate(_ASCII)

    def _heading(self) -> str:
        everywhere = self._project is None
        text = translate("Sessions of all projects") if everywhere else translate("Sessions of this project")
        return text + (translate(" with {text}", text=repr(self._text)) if self._text else "")

    def _row(self, info: SessionInfo, width: int = 0) -> str:
        """Return the title and the facts of a session, in columns if there is a width."""
        details = self._details.get((info.id, info.head))
        facts = [format_age(info.updated), *([details.facts] if details is not None else [])]
        if self._project is None and info.folder:
            facts.append(shorten(Path(info.folder).name, 20))
        right = " · ".join(facts)
        room = width - cell_len(right) - 2
        if not width:
            return f"{_title_of(info)} · {right}"
        return _title_of(info) if room < 12 else f"{set_cell_size(_title_of(info), room)}  {right}"


_ASCII = str.maketrans("❯·…", ">-~")


def _title_of(info: SessionInfo) -> str:
    return shorten(info.title, 200) or translate("(no title)")


def _fit(line: str, width: int) -> str:
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


async def pick_session(
    store: Store, *, everywhere: bool, color: bool, unicode: bool, plain: bool
) -> SessionInfo | None:
    """Show the list alone on the terminal and return the session that the user chooses."""

    async def ignore(text: str) -> None:
        pass

    screen = (
        PlainScreen(submit=ignore, interrupt=lambda: False)
        if plain
        else ChatScreen(
            live_text=str,
            status=str,
            submit=ignore,
            interrupt=lambda: False,
            color=color,
            unicode=unicode,
            output=open_output(),
        )
    )
    picker = SessionPicker(store, screen, everywhere=everywhere, unicode=unicode)

    async def choose() -> SessionInfo | None:
        try:
            return await picker.choose()
        finally:
            screen.exit()

    task = asyncio.create_task(choose())
    try:
        await screen.run()
        return await task if task.done() else None
    finally:
        task.cancel()
