"""The slash commands of a chat."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import set_cell_size

from vaka.agents.react import tool_name_of
from vaka.cli.chat.completion import fuzzy_sort
from vaka.cli.chat.file_changes import describe_changes, describe_rewind, show_change
from vaka.cli.chat.session_picker import SessionPicker
from vaka.cli.display.plain_renderer import format_cost, format_tokens
from vaka.cli.display.rich_renderer import THEMES
from vaka.cli.display.view import todo_lines
from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.options import expand_path
from vaka.cli.kit.render import Transcript, as_printable, result_of_compaction
from vaka.cli.strings import translate
from vaka.config.setting_keys import SETTING_KEYS
from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import FileChanged, InvalidInput, NotFound
from vaka.core.types.ids import parse_session_id
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.core.types.progress import GIVEN_CALLS, StepStarted
from vaka.runtime.session_edits import find_boundary_before

if TYPE_CHECKING:
    from vaka.cli.chat.conversation import Chat

_BAR_MARKS, _ASCII_BAR_MARKS = "█▓▒░▞·", "#=+-:."


class _SentTool(msgspec.Struct):
    """A tool in the list that a step has sent."""

    name: str


class SlashCommands:
    """Runs slash commands; each writes to the screen of its conversation."""

    def __init__(self, conversation: "Chat") -> None:
        self._chat = conversation
        self._has_shown = False
        self._mode_before_plan = "default"
        self._commands: dict[str, tuple[Callable[[str], Awaitable[None]], str]] = {
            "help": (self._help, translate("the commands and keys")),
            "model": (self._model, translate("[NAME]: the model of the next turns")),
            "tools": (self._tools, translate("the tools of the agent")),
            "mcp": (self._mcp, translate("the MCP servers and their states")),
            "sessions": (self._sessions, translate("[TEXT]: choose a session, of this project first")),
            "resume": (self._resume, translate("[ID]: finish the unfinished turn, or go on with another session")),
            "fork": (self._fork, translate("go on in a copy of this session")),
            "undo": (self._undo, translate("[force]: take back the last turn and what it changed in files")),
            "rewind": (self._rewind, translate("SEQ [files] [force]: take back everything after an event")),
            "diff": (self._diff, translate("what this session has changed in files")),
            "context": (self._context, translate("what fills the context window")),
            "compact": (self._compact, translate("[TEXT]: summarize older messages; TEXT is what to keep")),
            "usage": (self._usage, translate("tokens by model")),
            "cost": (self._usage, translate("tokens by model")),
            "approvals": (self._approvals, translate("answer open approvals and questions")),
            "permissions": (self._permissions, translate("[MODE]: the permission mode")),
            "plan": (self._plan, translate("switch to the mode in which nothing is changed, and back")),
            "todo": (self._todo, translate("the to-do list")),
            "export": (self._export, translate("FILE: write the conversation as Markdown")),
            "copy": (self._copy, translate("copy the last answer to the clipboard of the terminal")),
            "clear": (self._clear, translate("begin a new session")),
            "theme": (self._theme, translate("dark, light or none")),
            "doctor": (self._doctor, translate("check the installation")),
            "exit": (self._exit, translate("leave")),
        }

    @property
    def help_texts(self) -> dict[str, str]:
        """The description of each command, by name; the commands of the project follow."""
        own = {name: text for name, (_, text) in self._commands.items()}
        return own | {name: text for name, text in self._chat.settings.project_commands.items() if name not in own}

    async def run(self, text: str) -> None:
        """Run a command. Raises ``UsageError`` for an unknown one."""
        name, _, argument = text.strip().partition(" ")
        is_prompt = name.startswith("mcp__")  # of an MCP server
        if name not in self._commands and (is_prompt or name in self._chat.settings.project_commands):
            await self._chat.session.send(f"/{text}", on_busy="queue", model=self._chat.model)
            return
        begun = [command for command in self._commands if command.startswith(name)]
        name = begun[0] if len(begun) == 1 and name else name
        if name not in self._commands:
            near = fuzzy_sort(name, self._commands)
            hint = f"did you mean /{near[0]}? See /help" if near else "see /help"
            raise UsageError(f"there is no command /{name}; {hint}")
        self._has_shown = False
        try:
            await self._commands[name][0](argument.strip())
        except NotFound as error:
            if self._chat.session.id in str(error) and not await self._has_begun():
                raise UsageError(translate("this session has no turn yet")) from error
            raise
        self._chat.screen.print("\n" if self._has_shown else "")

    def _show(self, *lines: str) -> None:
        self._has_shown = True
        for line in lines:
            self._chat.print_note(line)

    async def _help(self, argument: str) -> None:
        rows = [f"  /{name:<12}{text}" for name, text in self.help_texts.items()]
        keys = (
            translate("!command runs a command, #note adds a note to the memory file of the project"),
            translate("Enter sends, Alt-Enter begins a new line, Ctrl-G edits the input in $EDITOR"),
            translate("@ names a file; Tab or arrows choose a completion; a long paste is folded"),
            translate("Up in an empty input takes back the last queued one, else recalls earlier ones"),
            translate("Esc or Ctrl-C interrupts, a second time leaves; Ctrl-D leaves"),
            translate("Shift-Tab changes the permission mode, Ctrl-O shows the last result whole,"),
            translate("and again the one before it; Ctrl-T shows the reasoning before the last answer"),
        )
        self._show(translate("Commands"), *rows, translate("Keys"), *(f"  {line}" for line in keys))

    async def _model(self, argument: str) -> None:
        chat = self._chat
        if argument:
            chat.runtime.models.find(argument)
            chat.model = argument
        self._show(translate("model: {name}", name=chat.model_name or translate("the model of the settings")))

    async def _tools(self, argument: str) -> None:
        """List the tools of the last request, to which the project and MCP servers may have added some."""
        sent = await self._read_sent_tools()
        names = sent or [tool_name_of(tool) for tool in self._chat.session.agent.tools]
        self._show(*(as_printable(f"  {name}", lines=False) for name in names))
        if not sent:
            self._show(translate("the first prompt adds those for child agents, skills and MCP servers"))

    async def _mcp(self, argument: str) -> None:
        statuses = self._chat.runtime.mcp_status()
        if not statuses:
            self._show(translate("no MCP server may be started; `vaka mcp list` shows why"))
        states = {
            "idle": translate("starts with the next prompt"),
            "connecting": translate("is starting"),
            "ready": translate("ready"),
            "failed": translate("failed"),
            "closed": translate("closed"),
        }
        for status in statuses:
            facts = [
                translate("not started") if status.state == "idle" and status.reason else states[status.state],
                translate("{count} tools", count=status.tools) if status.tools else "",
                status.software,
                status.reason,
            ]
            self._show(as_printable(f"  {status.server}: {', '.join(fact for fact in facts if fact)}", lines=False))

    async def _sessions(self, argument: str) -> None:
        chat = self._chat
        picker = SessionPicker(chat.runtime.store, chat.screen, current=chat.session.id, unicode=chat.settings.unicode)
        info = await picker.choose(argument)
        if info is not None:
            await self._open(info)

    async def _resume(self, argument: str) -> None:
        chat = self._chat
        if argument:
            info = await chat.runtime.store.sessions.find(parse_session_id(argument))
            if info is None:
                raise NotFound(f"there is no session {argument!r}; /sessions lists them")
            await self._open(info)
            return
        info = await chat.runtime.store.sessions.find(chat.session.id)
        if info is None or not (info.turn or info.inputs):
            await self._sessions("")
            return
        async with aclosing(chat.session.resume()) as events:
            async for _ in events:  # the chat shows the events as it follows the session
                pass

    async def _open(self, info: SessionInfo) -> None:
        """Go on with a session of this folder."""
        if info.folder and Path(info.folder) != Path.cwd().resolve():
            raise InvalidInput(f"session {info.id} belongs to {info.folder}; run `vaka chat --session {info.id}`")
        await self._chat.show_session(await self._chat.runtime.open(id=info.id))

    async def _fork(self, argument: str) -> None:
        chat = self._chat
        fork = await chat.session.fork()
        await chat.show_session(await chat.runtime.open(id=fork.id))

    async def _undo(self, argument: str) -> None:
        chat = self._chat
        turn = await chat.session.last_turn()
        if not turn:
            raise NotFound("there is no turn to undo")
        if argument not in ("", "force"):
            raise UsageError("/undo takes nothing, or: force")
        place = await find_boundary_before(chat.runtime.store, chat.session.id, turn[0].seq)
        await self._rewind_files(str(place), "/undo force", force=bool(argument))
        chat.print_note(translate("the last turn is taken back"))

    async def _rewind(self, argument: str) -> None:
        place, *words = argument.split() or [""]
        if not place:
            raise InvalidInput("/rewind needs the number of an event; `vaka sessions show ID --events` lists them")
        if words not in ([], ["files"], ["files", "force"]):
            raise UsageError("after the event, /rewind takes nothing, files, or files force")
        if words:
            await self._rewind_files(place, f"/rewind {place} files force", force="force" in words)
            return
        await self._chat.session.rewind(place, interrupt=True)
        self._chat.print_note(translate("files stay as they are"))

    async def _rewind_files(self, place: str, force_command: str, *, force: bool) -> None:
        """Rewind the session and its files, and show what was restored and what was not."""
        chat = self._chat
        try:
            effect = await chat.session.rewind(place, interrupt=True, files=True, force=force)
        except FileChanged as error:
            raise FileChanged(f"{error}; nothing was taken back; {force_command} overwrites these files") from error
        if effect is not None:
            for line in describe_rewind(effect, f"/rewind {place} files force"):
                chat.print_note(line)

    async def _diff(self, argument: str) -> None:
        chat = self._chat
        changes = await chat.runtime.file_changes(chat.session.id)
        for versions in changes.files:
            call, result = show_change(versions)
            chat.screen.print(chat.renderer.tool_call(call, result, full=True) + "\n")
        others = list(describe_changes(changes.effect))
        if not changes.files:
            others.insert(0, translate("no file differs from what it was before this session"))
        self._show(*others)

    async def _context(self, argument: str) -> None:
        """Show what fills the context window: a bar with a part for each kind, and its share."""
        chat, sizes = self._chat, await self._prompt_sizes()
        for message in await chat.session.messages():
            for name, size in _sizes_of(message):
                sizes[name] = sizes.get(name, 0) + size
        total, used = sum(sizes.values()), chat.view.context_tokens
        if not total or not used:
            self._show(translate("no request yet"))
            return
        parts = sorted(((size, name) for name, size in sizes.items() if size), reverse=True)
        marks, width = _BAR_MARKS if chat.settings.unicode else _ASCII_BAR_MARKS, min(60, chat.screen.columns - 4)
        bar = "".join(mark * max(round(width * size / total), 1) for (size, _), mark in zip(parts, marks, strict=False))
        rows = [
            f"  {mark} {set_cell_size(name, 18)}{100 * size / total:3.0f}%  "
            + translate("about {tokens} tokens", tokens=format_tokens(round(used * size / total)))
            for (size, name), mark in zip(parts, marks, strict=False)
        ]
        text = translate("{tokens} tokens in the last request and its answer", tokens=format_tokens(used))
        self._show(text, f"  {bar[:width]}", *rows)

    async def _compact(self, argument: str) -> None:
        """Summarize the older messages; the chat shows the event as it follows the session."""
        if not await self._has_begun():
            self._show(result_of_compaction(None, ""))
            return
        self._show(translate("summarizing older messages …"))
        done = await self._chat.session.compact(argument)
        if done.event is None:
            self._show(result_of_compaction(None, done.skipped))

    async def _prompt_sizes(self) -> dict[str, int]:
        """Return the characters of the system prompt and of the tools, as the last step sent them."""
        blobs, step = self._chat.runtime.store.blobs, await self._find_last_step()
        parts = [(translate("system prompt"), step.system), (translate("tools"), step.tools)] if step else []
        return {name: len(await blobs.get(digest)) for name, digest in parts if digest is not None}

    async def _read_sent_tools(self) -> list[str]:
        """Return the names of the tools that the last step sent to the model."""
        step = await self._find_last_step()
        if step is None or step.tools is None:
            return []
        menu = await self._chat.runtime.store.blobs.get(step.tools)
        return [spec.name for spec in msgspec.json.decode(menu, type=list[_SentTool])]

    async def _find_last_step(self) -> StepStarted | None:
        """Return the last step of the agent itself; steps of child agents have a path."""
        events = await self._chat.session.last_turn() if await self._has_begun() else ()
        own = [event.data for event in events if not event.path]
        return next((data for data in reversed(own) if isinstance(data, StepStarted)), None)

    async def _has_begun(self) -> bool:
        """Return whether the session is stored: it begins with the first prompt."""
        return await self._chat.runtime.store.sessions.find(self._chat.session.id) is not None

    async def _usage(self, argument: str) -> None:
        stats = await self._chat.runtime.stats(self._chat.session.id)
        for name, used in stats.by_model.items():
            usage = used.usage
            if name == GIVEN_CALLS:
                continue
            facts = [
                translate("{count} calls", count=used.request_count),
                translate("{tokens} tokens in", tokens=format_tokens(usage.input)),
                translate("{tokens} cached", tokens=format_tokens(usage.cache_read)) if usage.cache_read else "",
                translate("{tokens} out", tokens=format_tokens(usage.output)),
            ]
            cost = f"  {format_cost(usage.cost)}" if usage.cost else ""
            self._show(f"  {name}: {', '.join(fact for fact in facts if fact)}{cost}")
        text = translate("total: {tokens} tokens", tokens=format_tokens(stats.total_tokens))
        self._show(f"{text} {format_cost(stats.usage.cost)}".rstrip())

    async def _approvals(self, argument: str) -> None:
        if not self._chat.prompter.pending:
            self._show(translate("nothing waits for a decision"))
        self._chat.prompter.reopen()

    async def _permissions(self, argument: str) -> None:
        modes = SETTING_KEYS["permission_mode"].choices
        if argument and argument not in modes:
            raise UsageError(f"there is no permission mode {argument!r}; there are {', '.join(modes)}")
        if argument:
            self._chat.change_mode(argument)
        self._show(translate("permission mode: {mode}", mode=self._chat.mode))

    async def _plan(self, argument: str) -> None:
        mode = self._chat.mode
        if mode != "plan":
            self._mode_before_plan = mode
        self._chat.change_mode(self._mode_before_plan if mode == "plan" else "plan")
        self._show(translate("permission mode: {mode}", mode=self._chat.mode))

    async def _todo(self, argument: str) -> None:
        todos = self._chat.view.todos
        self._show(*(todo_lines(todos) if todos else [translate("the to-do list is empty")]))

    async def _export(self, argument: str) -> None:
        if not argument:
            raise UsageError("/export needs the name of a file")
        transcript, path = Transcript(markdown=True), expand_path(argument)
        async with aclosing(self._chat.runtime.store.events.read(self._chat.session.id)) as events:
            parts = [text async for event in events if (text := transcript.render_event(event))]
        await asyncio.to_thread(path.write_text, "\n".join(parts), encoding="utf-8")
        self._show(translate("written to {file}", file=as_printable(str(path), lines=False)))

    async def _copy(self, argument: str) -> None:
        messages = await self._chat.session.messages()
        answers = [m for m in messages if isinstance(m, AssistantMessage) and m.model != GIVEN_CALLS]
        text = next((shown for message in reversed(answers) if (shown := text_of(message.content))), "")
        if not text:
            raise NotFound("there is no answer yet")
        data = base64.b64encode(text.encode("utf-8", "replace")).decode()
        self._chat.screen.print(f"\x1b]52;c;{data}\x07")
        self._show(translate("{count} characters copied, if this terminal allows it", count=len(text)))

    async def _clear(self, argument: str) -> None:
        session = await self._chat.runtime.open()
        await self._chat.session.leave("clear", successor=session)
        await self._chat.show_session(session)
        self._show(translate("a new session: {id}", id=self._chat.session.id))

    async def _theme(self, argument: str) -> None:
        if argument not in THEMES:
            raise UsageError(f"/theme takes {', '.join(THEMES)}")
        self._chat.set_theme(argument)

    async def _doctor(self, argument: str) -> None:
        process = await asyncio.create_subprocess_exec(
            "vaka", "doctor", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        self._show(*output.decode("utf-8", "replace").rstrip().split("\n"))

    async def _exit(self, argument: str) -> None:
        self._chat.screen.exit()


def _sizes_of(message: Any) -> list[tuple[str, int]]:
    """Return the parts of a message by kind, with their characters."""
    if isinstance(message, UserMessage):
        return [(translate("prompts"), len(text_of(message.content)))]
    if isinstance(message, AssistantMessage):
        calls = sum(len(msgspec.json.encode(call.arguments)) for call in message.calls)
        return [(translate("answers"), len(text_of(message.content))), (translate("tool calls"), calls)]
    if isinstance(message, ToolMessage):
        return [(translate("tool results"), sum(len(result.text) for result in message.results))]
    return []
