"""Prompt a person for the open approvals and questions of a session; another process may answer first."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from vaka.cli.display.call_summary import NO_DECLARED_TRAITS, TraitsByName
from vaka.cli.kit.bootstrap import current_user
from vaka.cli.kit.errors import describe_error
from vaka.cli.kit.render import as_printable, width_of
from vaka.cli.strings import translate
from vaka.cli.turn.approval_view import describe_sandbox, render_approval, render_rules, summarize_call
from vaka.config.rule_files import settings_file_for_scope
from vaka.config.setting_keys import parse_seconds
from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, ApprovalScope, QuestionAsked
from vaka.core.types.decision_text import Choice, text_of_decision
from vaka.core.types.errors import ConfigError, InvalidInput, NotFound, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.tool import Grant
from vaka.runtime.resolve_approval import check_rule
from vaka.runtime.runtime import Runtime

_KEYS = {
    "approve": "y",
    "approve_session": "s",
    "approve_project": "p",
    "approve_user": "u",
    "edit": "a",
    "reject": "n",
}
"""The key to type by the id of the choice."""
MAX_LISTED = 9
"""Open approvals that are listed."""
ALL_KEY = "*"


class PromptFace(Protocol):
    """The place where a person is asked."""

    may_leave: bool
    """Whether ``ask`` may return ``None``: the question stays open. Elsewhere the end of input is a refusal."""

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines that a question may take."""
        ...

    def ask(self, text: str, prompt: str, keys: str = "") -> Awaitable[str | None]:
        """Ask for a line below a text; single ``keys`` may answer at once. Both disappear at the end."""
        ...

    def echo(self, text: str) -> None:
        """Print text that stays."""
        ...

    def edit(self, text: str) -> Awaitable[str | None]:
        """Return a text after a person has changed it in an editor, ``None`` without one."""
        ...


class DecisionPrompter:
    """Prompts for the open decisions of one session, one at a time."""

    def __init__(
        self,
        runtime: Runtime,
        session: SessionId,
        face: PromptFace,
        *,
        approves: Callable[[PendingDecision], bool] = lambda pending: False,
        declared: TraitsByName = NO_DECLARED_TRAITS,
    ) -> None:
        """Approve without a prompt what ``approves`` selects; ``declared`` has traits of tools not built in."""
        self._declared = declared
        self.runtime = runtime
        self.session = session
        self.face = face
        self._approves = approves
        self.pending: dict[DecisionId, PendingDecision] = {}
        """Open decisions, oldest first."""
        self._postponed: set[DecisionId] = set()
        self._next: DecisionId | None = None
        """The decision to prompt for next, ``None`` for the oldest."""
        self._active: tuple[DecisionId, asyncio.Task[None]] | None = None
        self._dialog: ApprovalDialog | None = None
        self._resolving: set[DecisionId] = set()

    async def load(self) -> None:
        """Prompt for the decisions that are open now."""
        self._add(await self.runtime.decisions(self.session))

    def take(self, event: Event) -> None:
        """Prompt for what an event asks; end the prompt for what it settles."""
        settled, everything = find_settled_decisions([event])
        gone = [id for id in (list(self.pending) if everything else settled) if self.pending.pop(id, None) is not None]
        if self._active is not None and self._active[0] in gone and self._active[0] not in self._resolving:
            self._stop()
        self._add(find_asked_decisions(self.session, [event]), changed=bool(gone))

    def reopen(self) -> None:
        """Prompt again for decisions that the person has left open."""
        self._postponed.clear()
        self._update()

    def close(self) -> None:
        self.pending.clear()
        self._stop()

    def _add(self, decisions: Iterable[PendingDecision], *, changed: bool = False) -> None:
        added = [pending for pending in decisions if pending.id not in self.pending]
        self.pending.update((pending.id, pending) for pending in added)
        if (added or changed) and self._active is not None and self._dialog is not None and self._dialog.may_restart:
            self._next = self._active[0]
            self._stop()  # the list of open approvals is shown again as it is now
        self._update()

    def _update(self) -> None:
        first = next((pending for id, pending in self.pending.items() if id not in self._postponed), None)
        waiting = self.pending.get(self._next, first) if self._next is not None else first
        if self._active is None and waiting is not None:
            self._start(waiting)

    def _start(self, pending: PendingDecision) -> None:
        self._next = None
        task = asyncio.create_task(self._prompt(pending))
        self._active = pending.id, task
        task.add_done_callback(self._on_done)

    def _stop(self) -> None:
        active = self._active
        self._active = None
        self._dialog = None
        if active is not None:
            active[1].cancel()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if self._active is not None and self._active[1] is task:
            if error is not None:  # asked again, it would fail again
                self._postponed.add(self._active[0])
                with suppress(OSError):
                    self.face.echo(f"error: {describe_error(error).message}")
            self._active = self._dialog = None
            self._update()

    async def _prompt(self, pending: PendingDecision) -> None:
        try:
            await self._decide(pending)
        except NotFound:  # it was decided elsewhere; its event follows
            self.pending.pop(pending.id, None)
        except VakaError as error:
            self._postponed.add(pending.id)
            self.face.echo(f"error: {describe_error(error).message}")

    async def _decide(self, pending: PendingDecision) -> None:
        body = pending.event.data
        if isinstance(body, QuestionAsked):
            await self._answer(pending.id, body)
        elif isinstance(body, ApprovalRequested) and self._approves(pending):
            await self._resolve(pending.id, {"decision": "approve"})
        elif isinstance(body, ApprovalRequested):
            await self._ask_approval(pending, body)

    async def _ask_approval(self, pending: PendingDecision, body: ApprovalRequested) -> None:
        if pending.id not in {row.id for row in await self.runtime.decisions(self.session)}:
            self.pending.pop(pending.id, None)
            return  # the rule of another approval covers it
        others = [row for row in self.pending.values() if isinstance(row.event.data, ApprovalRequested)]
        dialog = self._dialog = ApprovalDialog(
            body,
            self.face,
            child=bool(pending.event.path),
            others=len(others),
            describe=lambda: self._describe(pending.id, body, others),
            summarize=lambda width: summarize_call(body, width, self._declared),
        )
        while pending.id in self.pending:
            answer = await dialog.ask_decision()
            if answer is None:
                self._postponed.update(row.id for row in others)
                self.face.echo(translate("the question stays open; /approvals asks it again"))
                return
            if "show" in answer:
                number: int = answer["show"]
                self._next = others[number - 1].id
                return
            try:
                ids = [row.id for row in others] if answer.pop("all", False) else [pending.id]
                await self._resolve_all(ids, answer)
            except (InvalidInput, ConfigError) as error:
                self.face.echo(f"error: {describe_error(error).message}")

    def _describe(self, id: DecisionId, body: ApprovalRequested, others: Sequence[PendingDecision]) -> str:
        """Return an approval, below the list of all that are open if there are several."""
        lines: list[str] = []
        if len(others) > 1:
            lines.append(translate("{count} approvals are open:", count=len(others)))
            for number, row in enumerate(others[:MAX_LISTED], start=1):
                assert isinstance(row.event.data, ApprovalRequested)  # noqa: S101  # the list has nothing else
                mark = ">" if row.id == id else " "
                lines.append(
                    f"{mark} {number}. {summarize_call(row.event.data, self.face.size[0] - 20, self._declared)}"
                )
            more = translate("… {count} more", count=len(others) - MAX_LISTED)
            lines += [f"  {more}"] if len(others) > MAX_LISTED else []
        place = next((n for n, row in enumerate(others, start=1) if row.id == id), 1)
        count = translate(" ({number} of {count})", number=place, count=len(others)) if len(others) > 1 else ""
        shown = render_approval(body, count=count, sandbox=self._sandbox_text(body), declared=self._declared)
        return "\n".join([*lines, shown])

    def _sandbox_text(self, body: ApprovalRequested) -> str:
        try:
            return describe_sandbox(body, self.runtime.env.world.sandbox)
        except VakaError as error:
            return f"none: {describe_error(error).message}"

    async def _resolve_all(self, ids: Sequence[DecisionId], answer: dict[str, Any]) -> None:
        for id in ids:
            pending = self.pending.get(id)
            if pending is None:
                continue  # the answer to another one has settled it
            fields = dict(answer)
            if len(ids) > 1 and fields.get("scope", "once") != "once":
                fields["rule"] = getattr(pending.event.data, "grant", "")
            try:
                await self._resolve(id, fields)
            except NotFound:
                self.pending.pop(id, None)

    async def _resolve(self, id: DecisionId, answer: dict[str, Any]) -> None:
        body = self.pending[id].event.data
        self._resolving.add(id)
        try:
            event = await self.runtime.resolve(id, **answer, by=current_user())
        finally:
            self._resolving.discard(id)
        self.pending.pop(id, None)
        resolution = event.data
        if isinstance(resolution, ApprovalResolved) and isinstance(body, ApprovalRequested):
            self._report_stored_rule(body, resolution)

    def _report_stored_rule(self, body: ApprovalRequested, resolution: ApprovalResolved) -> None:
        """Print where a rule was stored."""
        if resolution.scope not in ("project", "user") or resolution.by != current_user():
            return
        path, _ = settings_file_for_scope(resolution.scope, body.cwd, Path.home())
        rules = ", ".join(Grant(rule=resolution.rule).rules)
        stored = translate("{rules} is stored in {file}", rules=rules, file=str(path))
        self.face.echo(as_printable(stored, lines=False))

    async def _answer(self, id: DecisionId, body: QuestionAsked) -> None:
        lines = [as_printable(body.text)]
        lines += [f"  [{number}] {as_printable(option)}" for number, option in enumerate(body.options, start=1)]
        answer: Any = ""
        while not answer:
            line = await self.face.ask("\n".join(lines), "> ")
            if line is None and self.face.may_leave:
                self._postponed.add(id)
                return
            answer = (line or "").strip() if line is not None else None
            if answer is None:
                break
        if isinstance(answer, str) and answer.isdigit() and 0 < int(answer) <= len(body.options):
            answer = body.options[int(answer) - 1]
        if body.kind == "outcome" and answer is not None:
            answer = {"outcome": answer}
            if answer["outcome"] == "happened":
                answer["result"] = (await self.face.ask("", translate("What did it return?") + " > ") or "").strip()
        await self.runtime.answer(id, answer, by=current_user())
        self.pending.pop(id, None)


class ApprovalDialog:
    """The prompt for one approval, repeated until the answer is valid."""

    def __init__(
        self,
        body: ApprovalRequested,
        face: PromptFace,
        *,
        child: bool = False,
        others: int = 1,
        describe: Callable[[], str],
        summarize: Callable[[int], str],
    ) -> None:
        """``summarize`` returns the call in a line of that width, ``describe`` all of the approval."""
        self.body, self.face = body, face
        self._others = others
        self._describe = describe
        self._summarize = summarize
        self._reject_hint = "" if child else translate(", which ends the turn")
        self.rules = Grant(rule=body.grant).rules
        self.may_restart = False
        """Whether the prompt waits for its first key."""
        self._was_printed = False
        choices = text_of_decision(body, translate=translate).choices
        self._choices = {_KEYS[choice.id]: choice for choice in choices}
        self._approvals = {key: choice for key, choice in self._choices.items() if choice.id.startswith("approve")}

    @property
    def _may_edit_rules(self) -> bool:
        return bool(self.rules and self._approvals)

    def _labels(self) -> list[str]:
        """Return the keys of the prompt with their labels."""
        labels = [_label_of(key, choice) for key, choice in self._choices.items()]
        more = [translate("[e] edit rule")] if self._may_edit_rules else []
        labels[len(self._approvals) : len(self._approvals)] = more
        several = [f"[{ALL_KEY}] {translate('all of these')}", translate("[1] [2] … another")]
        labels[-1:-1] = several if self._others > 1 else []
        return labels

    def _keys(self) -> str:
        """Return the keys that answer the prompt at once."""
        more = ALL_KEY + "".join(map(str, range(1, min(self._others, MAX_LISTED) + 1))) if self._others > 1 else ""
        edits = f"{'e' if self._may_edit_rules else ''}{'a' if 'a' in self._choices else ''}"
        return f"{''.join(self._approvals)}{edits}{more}n"

    async def ask_decision(self) -> dict[str, Any] | None:
        """Prompt until the answer is valid, and return it as arguments of ``Runtime.resolve``; ``None``: later.

        ``show`` is the number of another approval to show, ``all`` whether the answer is for all of them.
        """
        while True:
            self.may_restart = True
            line = await self.face.ask(self._text(), _join_choices(self._labels(), self.face.size[0]), self._keys())
            self.may_restart = False
            if line is None and self.face.may_leave:
                return None
            key, _, rest = (line if line is not None else "n").strip().partition(" ")
            answer = await self._interpret(key.lower(), rest.strip())
            if answer is not None:
                return answer

    def _text(self) -> str:
        """Return the approval and its rules; if the text is too long for its place, print it once instead."""
        text, rules = self._describe(), render_rules(self.rules)
        lines = text.split("\n")
        if len(lines) > self.face.size[1]:
            if not self._was_printed:
                self.face.echo(text)
            above = translate("… {count} lines, printed above", count=len(lines) - 1)
            self._was_printed, text = True, f"{lines[0]}\n  {above}"
        return f"{text}\n{rules}" if rules else text

    async def _interpret(self, key: str, rest: str) -> dict[str, Any] | None:
        if key in self._approvals:
            return self._parse_approval(self._approvals[key].scope, rest)
        if key == "n":
            return await self._ask_rejection(rest)
        if key == "e" and self._may_edit_rules:
            await self._edit_rules(rest)
            return None
        if key == "a" and key in self._choices:
            edit = self._parse_arguments(rest) if rest else await self._edit_arguments()
            return None if edit is None else {"decision": "approve", "edit": edit}
        if self._others > 1 and key == ALL_KEY:
            return await self._ask_all(rest)
        if self._others > 1 and key.isdecimal() and 0 < int(key) <= self._others:
            return {"show": int(key)}
        keys = ", ".join(self._keys())
        self.face.echo(translate("Answer with one of the keys in brackets: {keys}.", keys=keys))
        return None

    async def _ask_rejection(self, reason: str) -> dict[str, Any]:
        if not reason:
            prompt = translate("Reason for the model (Enter for none{hint})", hint=self._reject_hint) + " > "
            reason = await self.face.ask(translate("No to {call}", call=self._summary()), prompt) or ""
        return {"decision": "reject", "message": reason.strip()}

    def _summary(self) -> str:
        return self._summarize(self.face.size[0] - 20)

    async def _ask_all(self, rest: str) -> dict[str, Any] | None:
        """Ask what to answer to all open approvals; each is approved for longer with the rule of its own."""
        labels = [_label_of(key, self._choices[key]) for key in (*self._approvals, "n")]
        first = translate("All {count}: {choice}", count=self._others, choice=labels[0])
        prompt = _join_choices([first, *labels[1:]], self.face.size[0])
        line = rest or await self.face.ask("", prompt, f"{''.join(self._approvals)}n")
        key, _, reason = (line or "").strip().partition(" ")
        if key == "n":
            return {**await self._ask_rejection(reason.strip()), "all": True}
        if key in self._approvals and not reason:
            return {"decision": "approve", "scope": self._approvals[key].scope, "all": True}
        return None

    def _parse_approval(self, scope: ApprovalScope, rest: str) -> dict[str, Any] | None:
        """Parse an approval; a time span may follow only an approval for the session."""
        rule, ttl = "" if scope == "once" else "\n".join(self.rules), None
        try:
            if rest and scope != "session":
                raise ValueError(f"expected nothing after the key, not {rest!r}")
            ttl = parse_seconds(rest) if rest else None
        except ValueError as error:
            self.face.echo(f"error: {as_printable(str(error), lines=False)}")
            return None
        return {"decision": "approve", "scope": scope, "rule": rule, "ttl": ttl}

    async def _edit_rules(self, rest: str) -> None:
        """Replace the rules; the new ones must match the call."""
        rules = [rest] if rest else [await self._ask_rule(rule) for rule in self.rules]
        rule = "\n".join(rule for rule in rules if rule != "-")
        try:
            check_rule(self.body, rule, self.body.call)
        except (InvalidInput, ConfigError) as error:
            self.face.echo(f"error: {describe_error(error).message}")
            return
        self.rules = Grant(rule=rule).rules

    async def _ask_rule(self, rule: str) -> str:
        shown = as_printable(rule, lines=False)
        prompt = translate("Rule, now {rule} (Enter keeps it, - drops it)", rule=shown) + " > "
        line = await self.face.ask("", prompt)
        return (line or "").strip() or rule

    async def _edit_arguments(self) -> dict[str, Any] | None:
        """Let the person change the arguments in an editor, again until they are a JSON object."""
        text = msgspec.json.format(msgspec.json.encode(self.body.call.arguments), indent=2).decode() + "\n"
        while True:
            edited = await self.face.edit(text)
            if edited is None:
                return self._parse_arguments(
                    await self.face.ask(self._summary(), translate("Arguments as JSON") + " > ") or ""
                )
            arguments = self._parse_arguments(edited)
            if arguments is not None:
                return arguments
            prompt = translate("[Enter] edit again · [q] leave the arguments as they are") + " > "
            again = await self.face.ask("", prompt, "q")
            if again is None or again.strip():
                return None
            text = edited

    def _parse_arguments(self, text: str) -> dict[str, Any] | None:
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            self.face.echo(f"error: expected a JSON object: {_locate_json_error(text) or error}")
            return None


def _locate_json_error(text: str) -> str:
    """Return where a text is not JSON, ``""`` if it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    except (RecursionError, ValueError):
        return ""
    return ""


def _label_of(key: str, choice: Choice) -> str:
    return f"[{key}] {choice.brief}"


def _join_choices(choices: Sequence[str], width: int) -> str:
    """Return the choices and a prompt sign, in lines that break between them."""
    lines = [choices[0]]
    for choice in choices[1:]:
        joined = f"{lines[-1]} · {choice}"
        if width_of(joined) + 2 < width:
            lines[-1] = joined
        else:
            lines.append(choice)
    return "\n".join(lines) + " > "
