"""``MatchAgent``: a router that hands each input to the agent whose rule the input matches.

A turn of a router is:

1. match the input, with one model call or with an offline matcher; the result is recorded in the log, so that a turn
   that is resumed after a crash does not match again;
2. decide: while an agent is active, the same rule or no match sends the input on to it, and another rule replaces it;
   otherwise the matched intents run in order, and without a match the ``default`` agent runs;
3. run the agent as a child: a ``resume`` call under the agent's name, with a path and events of its own in the same
   log. An agent that has not finished stays active and receives the next input, in the same conversation. After an
   agent has finished (a quit tool, the end of a script, a router without an active agent), the next intent starts with
   the same text; after the last intent no agent is active.

The answer of the turn is the text of the agents that ran in it. What a router knows between turns is one value of the
session's state, ``RouterState``, under ``router_key``: a fork, a rewind and a restart have it as the log has it. A turn
reads only its own events, so that it costs the same in a long session.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec

from vaka.agents.react import Agent
from vaka.agents.routing import ROUTER_DIGEST, RoutingAgent
from vaka.core.loop.blobs import restore_content
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.prompt import turn_input_content
from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.subagent import child_result
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.agent import AgentBody, AgentKind, AgentServices, RunnableAgent
from vaka.core.ports.model import Model, Prompt
from vaka.core.ports.tool import ToolContext
from vaka.core.types.control import InputAdded, StateChanged
from vaka.core.types.ending import Ending
from vaka.core.types.errors import InvalidInput, Suspended, TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath, TurnId
from vaka.core.types.keywords import find_near_names, suggest_keywords
from vaka.core.types.limits import Limits
from vaka.core.types.message import (
    Content,
    Message,
    Text,
    ToolResult,
    UserMessage,
    as_content,
    text_of,
)
from vaka.core.types.monitor import OPEN_OUTCOMES, SCRIPT_END, ScriptAnswered
from vaka.core.types.progress import MessageCompleted, SubagentStarted, TurnStarted
from vaka.core.types.state import agent_key
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.genx.match.lines import MatchResult
from vaka.genx.match.matcher import CompiledRules, compile_rules
from vaka.genx.match.offline import OfflineMatcher
from vaka.genx.match.router_state import Intent, RouterState, build_history, is_ending, router_key
from vaka.genx.match.rules import MatchRule, parse_rule
from vaka.genx.quit_tools import is_finished

ROUTE_LAYER = "agent"
"""The layer of the calls by which a router runs its agents: policies allow them, unless a rule names the agent."""
MAX_INTENTS = 32
"""The intents of one input; a model that repeats itself may find more."""
MATCH = "match"
"""The name of the request in the log whose answer is what an input matches."""

_MATCH_NUMBER = 1
_SEPARATOR = "\n\n"


class Matcher(Protocol):
    """Finds the rules that a text expresses without a model, such as ``OfflineMatcher``."""

    async def match_async(self, text: str, /) -> Sequence[MatchResult]:
        """Return the results in the order of the text; ``[]`` when there are none."""
        ...


class Route(msgspec.Struct, frozen=True):
    """The agent that runs when one of the rules matches."""

    rules: Sequence[str]
    agent: Agent[Any, Any]


class MatchAgent(RoutingAgent):
    """A router: it matches each input with rules and lets the agent of the matching route answer.

    It writes no text of its own. The events of the agents are in the session's log under their own paths. It is an
    agent like any other: a tool of another one, or the agent of a route of another router.
    """

    __slots__ = ("asks_model", "compiled", "default", "matcher", "routes")

    @suggest_keywords
    def __init__(  # noqa: PLR0913  # a public constructor spells out every option
        self,
        name: str,
        *,
        rules: Sequence[MatchRule | Mapping[str, Any]],
        routes: Sequence[Route],
        default: Agent[Any, Any] | None = None,
        matcher: Matcher | Literal["offline", "offline-first"] | None = None,
        model: "Model | str | None" = None,
        template: str | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits | None = None,
        description: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Define a router.

        Args:
            name: The name in events, logs and approvals.
            rules: The rules, as values or as documents.
            routes: The agents, each with the names of the rules that lead to it. A rule without a route matches
                nothing.
            default: The agent for an input that matches nothing while no agent is active. Without one such a turn
                ends at once with an empty text.
            matcher: Matches without a model: ``offline`` for an ``OfflineMatcher`` of the rules, or a matcher of your
                own. ``offline-first`` asks the model if that finds nothing. By default the model matches.
            model: The model that matches; default: the runtime's. Agents of routes without a model use it, too.
            template: A Jinja template of the prompt, in place of the built-in one.
            middleware: Behaviour around the turns of the router, in order.
            limits: Bounds of one turn, its agents included.
            description: What the router does, for an agent that has it as a tool.
            options: Options of the model, such as ``temperature``.

        Raises:
            ConfigError: A rule is not well formed, or there is none.
            InvalidInput: A route has no rule or an unknown one, two agents have one name, or ``matcher`` is unknown.
        """
        compiled = compile_rules(
            [rule if isinstance(rule, MatchRule) else parse_rule(rule) for rule in rules], template=template
        )
        self.compiled: CompiledRules = compiled
        self.matcher: Matcher | None = OfflineMatcher(compiled.rules) if isinstance(matcher, str) else matcher
        self.asks_model = matcher in (None, "offline-first")
        if isinstance(matcher, str) and matcher not in ("offline", "offline-first"):
            raise InvalidInput(f"agent {name}: matcher must be offline, offline-first or a matcher, not {matcher!r}")
        self.default = default
        self.routes = _routes_by_rule(name, compiled, routes)
        self.agents = _agents_by_name(name, [*(route.agent for route in routes), *([default] if default else [])])
        super().__init__(
            name,
            model=model,
            tools=[*self.agents.values()],
            middleware=middleware,
            limits=limits,
            description=description,
            options=options,
        )

    @property
    def needs_model(self) -> bool:
        """Whether the router matches with a model; its agents may need one even if it does not."""
        return self.asks_model

    def bind(self, services: AgentServices) -> AgentBody[Turn]:
        """Return the body that runs the turns of the router."""
        return RouterBody(self, services)

    def build_messages(self, events: Iterable[Event], path: AgentPath) -> tuple[Message, ...]:
        """Return the inputs, and what the agents answered."""
        return build_history(events, path)

    def __repr__(self) -> str:
        return f"MatchAgent({self.name!r})"


def _routes_by_rule(name: str, compiled: CompiledRules, routes: Sequence[Route]) -> dict[str, Agent[Any, Any]]:
    agents: dict[str, Agent[Any, Any]] = {}
    for number, route in enumerate(routes):
        where = f"agent {name}: route[{number}]"
        if not route.rules or isinstance(route.rules, str):
            raise InvalidInput(f"{where}: rules is required: a list of the names of rules")
        agent = cast("object", route.agent)
        if not isinstance(agent, Agent):
            raise InvalidInput(f"{where}: agent is required: an Agent, not {agent!r}")
        for rule in route.rules:
            if rule not in compiled.by_name:
                near = find_near_names(rule, compiled.by_name, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the rules are {', '.join(compiled.by_name)}"
                raise InvalidInput(f"{where}: there is no rule {rule!r}; {hint}")
            if agents.setdefault(rule, route.agent) is not route.agent:
                raise InvalidInput(f"{where}: the rule {rule!r} has a route already, to {agents[rule].name!r}")
    return agents


def _agents_by_name(name: str, agents: Iterable[Agent[Any, Any]]) -> dict[str, Agent[Any, Any]]:
    found: dict[str, Agent[Any, Any]] = {}
    for agent in agents:
        if found.setdefault(agent.name, agent) is not agent:
            raise InvalidInput(f"agent {name}: two agents are named {agent.name!r}; give each its own name")
    return found


class RouterBody:
    """The body of the turns of a router."""

    def __init__(self, agent: MatchAgent, services: AgentServices) -> None:
        self._agent, self._services = agent, services

    async def __call__(self, turn: Turn) -> Ending:
        """Match the input and run the agents that it leads to, until one waits for the next input."""
        content = None if turn.path or self._agent.needs_model else _deferred_input(turn)
        if content is None:
            await turn.log.append(turn.scope)  # the input must be in the log before a model matches it
        return await _RoutedTurn(self._agent, self._services, turn, content).run()


_Matches: TypeAlias = list[tuple[str, dict[str, JSON]]]


class _RoutedTurn:
    """One turn of a router, begun or continued after a crash: requests that the log has answers to are not repeated."""

    def __init__(self, agent: MatchAgent, services: AgentServices, turn: Turn, content: Content | None) -> None:
        """``content`` is the input of a turn of which the log has nothing yet."""
        self._agent = agent
        self._services = services
        self._turn = turn
        events = _events_of_turn(turn) if content is None else []
        self._content = turn_input_content(events, turn.path, turn.id) if content is None else content
        self._journal = ScriptJournal(turn, events, ROUTER_DIGEST)
        self._key = router_key(turn.log, turn.path)
        before = self._journal.constant("state", turn.get_state(self._key))
        self._journal.record_start({})
        state = None if before is None else msgspec.convert(before, RouterState)
        self._state = state if state is not None and state.current.agent_name in agent.agents else None
        self._requests = _MATCH_NUMBER
        self._texts: list[str] = []

    async def run(self) -> Ending:
        """Run the turn; its text is the text of the agents that ran, also when it is stopped."""
        try:
            ending = await self._answer()
        except TurnStopped as stop:
            ending = Ending(limit=stop.note) if stop.kind == "limit" else Ending(kind=stop.kind, message=stop.note)
        if not ending.is_answer and self._has_finished():
            self._state = None  # the next input must not go to an agent that accepts none
        self._store_state()
        return msgspec.structs.replace(ending, text=_SEPARATOR.join(filter(None, self._texts)))

    async def _answer(self) -> Ending:
        self._content = await restore_content(self._turn.log.store.blobs, self._content)
        if not self._content:
            return await self._close()
        self._decide(await self._match(text_of(self._content)))
        return await self._run_intents()

    async def _match(self, text: str) -> _Matches:
        """Return what the input matches: as the log has it, or else as the model or the matcher finds it now."""
        async for answer in self._journal.replay():
            if answer.request.number == _MATCH_NUMBER:
                return msgspec.convert(answer.value, _Matches)
        results = await self._find_rules(text) if text.strip() else ()
        found = _distinct_matches(results)
        request = ScriptRequest.from_arguments(_MATCH_NUMBER, MATCH, text)
        recorded = await self._journal.record_answer(request, found)  # written with the call of an agent
        if self._agent.asks_model and self._turn.middleware.before_tool:
            await self._journal.commit()  # a hook before that call may take long, and a crash in it repeats no match
        return msgspec.convert(recorded.value, _Matches)

    async def _find_rules(self, text: str) -> Sequence[MatchResult]:
        turn, agent = self._turn, self._agent
        with turn.stop.cancellable():
            found = await agent.matcher.match_async(text) if agent.matcher is not None else ()
            if found or not agent.asks_model:
                return found
            settings, message = turn.recipe.settings, UserMessage(content=as_content(text))
            prompt = Prompt(
                messages=(message,), system=agent.compiled.prompt, options=dict(settings.options), session=turn.session
            )
            answer = await turn.ask_model(turn.recipe.model, prompt)
        parser = agent.compiled.parser()
        return [*parser.feed(answer), *parser.finish()]

    def _decide(self, found: _Matches) -> None:
        """Choose the agents of this turn: the active one for its own rule and for no rule, or else those that match."""
        routes, turn = self._agent.routes, self._turn
        intents = tuple(
            Intent(rule, routes[rule].name, args, turn.id, agent_key(turn.path))
            for rule, args in found
            if rule in routes
        )
        state, default = self._state, self._agent.default
        if state is not None and (not intents or intents[0].rule_name == state.current.rule_name):
            ahead = state.matches[state.current_index + 1 :]
            new = [intent for intent in intents[1:] if all(intent.rule_name != known.rule_name for known in ahead)]
            args = intents[0].args if intents else {}
            current = msgspec.structs.replace(state.current, args=args, turn=turn.id, path=agent_key(turn.path))
            self._state = RouterState((current, *ahead, *new), child=state.child)
        elif intents:
            self._state = RouterState(intents)
        else:
            intent = None if default is None else Intent("", default.name, turn=turn.id, path=agent_key(turn.path))
            self._state = None if intent is None else RouterState((intent,))

    async def _run_intents(self) -> Ending:
        while self._state is not None:
            intent = self._state.current
            ending = await self._run_agent(intent, await self._content_of(intent))
            if not ending.is_answer or not self._has_finished():
                return ending
            self._state = self._state.advance()
        return Ending()

    async def _run_agent(self, intent: Intent, content: Content) -> Ending:
        """Run the active agent with an input, or return how it ended before a crash."""
        turn = self._turn
        journal = self._journal
        state = self._state
        assert state is not None  # noqa: S101  # the callers have an active agent
        agent = self._services.find_agent(intent.agent_name)
        assert agent is not None  # noqa: S101  # the agents of routes are tools of the router
        self._requests += 1
        arguments = {"rule": intent.rule_name, **({"args": intent.args} if intent.args else {})}
        request = ScriptRequest.from_arguments(self._requests, intent.agent_name, arguments)
        turn.tools = {**turn.tools, intent.agent_name: _RouteTool(agent, content)}
        try:
            # An agent that has ended does not run again, so that its result can be written with what follows.
            result = await journal.call_tool(request, intent.agent_name, arguments, repeatable=True, after=state.child)
        except DecisionPending as pending:
            raise Suspended(pending.decisions) from pending
        finally:
            child = journal.child_of(request)
            if child and _has_started(turn, child):
                self._state = msgspec.structs.replace(state, child=agent_key((*turn.path, child)))
            elif not state.child:
                self._state = None  # no agent has started
        ending = _ending_of_result(result)
        if result.failed and not ending.text:
            ending = msgspec.structs.replace(ending, text=_partial_text(turn, (*turn.path, child)))
        self._texts.append(ending.text)
        turn.stop.check()  # the agent was stopped together with this turn
        return ending

    async def _content_of(self, intent: Intent) -> Content:
        """Return the input that an intent was found in, and its arguments as a line of JSON."""
        turn, content = self._turn, self._content
        if intent.turn != turn.id:
            path = tuple(intent.path.split("/")) if intent.path else ()
            earlier = turn_input_content(turn.log.window.events_at(path), path, TurnId(intent.turn))
            content = await restore_content(turn.log.store.blobs, earlier) or content
        if not intent.args:
            return content
        line, last = msgspec.json.encode(intent.args).decode(), content[-1]
        if not isinstance(last, Text):
            return (*content, Text(text=line))
        return (*content[:-1], msgspec.structs.replace(last, text=f"{last.text}\n{line}"))

    def _has_finished(self) -> bool:
        """Return whether the conversation of the active agent has ended."""
        if self._state is None or not self._state.child:
            return True
        log, path = self._turn.log, _path_of(self._state)
        if isinstance(self._agent.agents[self._state.current.agent_name], MatchAgent):
            return log.get_value(router_key(log, path)) is None
        return is_finished(log, path) or _has_script_ended(self._turn, path)

    async def _close(self) -> Ending:
        """Let the active agent end what it wants to end, in a turn without input."""
        state = self._state
        if state is None or not state.child or not isinstance(self._agent.agents[state.current.agent_name], AgentKind):
            return Ending()
        ending = await self._run_agent(Intent(state.current.rule_name, state.current.agent_name), ())
        self._state = None if ending.is_answer and self._has_finished() else self._state
        return ending

    def _store_state(self) -> None:
        """Defer the state to the next write, which is the write of the turn's end."""
        if self._state is not None:
            self._state = self._state.without_current_input()
        known = self._turn.get_state(self._key)
        if self._state != (None if known is None else msgspec.convert(known, RouterState)):
            value = None if self._state is None else msgspec.to_builtins(self._state)
            self._turn.log.defer(self._turn.scope, StateChanged(key=self._key, value=value))


def _distinct_matches(results: Iterable[MatchResult]) -> _Matches:
    """Return the matched rules with their arguments, each once, in order."""
    found: _Matches = []
    for result in results:
        match = (result.rule, result.given)
        if result.rule and len(found) < MAX_INTENTS and match not in found:
            found.append(match)
    return found


class _RouteTool:
    """Runs the agent of a route with an input of the router; implements ``Tool``.

    The result of an agent without a complete answer has its ``Ending`` as value.
    """

    def __init__(self, agent: RunnableAgent, content: Content) -> None:
        self._agent, self._content = agent, content
        self.spec = msgspec.structs.replace(agent.spec, layer=ROUTE_LAYER, timeout=None)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return ParsedArguments(msgspec.json.decode(raw) if isinstance(raw, str) else raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        ending = await self._agent.run(context, self._content)
        if ending.is_answer:  # which may be empty: a script need not write a text
            return ToolResult(call=context.call, content=as_content(ending.text) if ending.text else ())
        result = child_result(context.call, self.spec.name, ending)
        return msgspec.structs.replace(result, value=msgspec.to_builtins(ending))


def _ending_of_result(result: ToolResult) -> Ending:
    if not result.failed:
        return Ending(text=result.text)
    value: Any = result.value
    if is_ending(value):
        ending = msgspec.convert(value, Ending)
        if ending.kind == "failed" and not ending.code:  # the log has no code of an agent that ended before a crash
            return msgspec.structs.replace(ending, code=TurnError.code)
        return ending
    return Ending(kind="failed", code=TurnError.code, message=result.text)  # the agent has not started


def _deferred_input(turn: Turn) -> Content | None:
    """Return the input of a turn that is about to be written together with its input; ``None`` for another turn."""
    inputs: dict[str, Content] = {}
    for _, body in turn.log.deferred:
        if isinstance(body, InputAdded):
            inputs[body.key] = body.content
        elif isinstance(body, TurnStarted):
            if body.content is None and inputs.keys() >= set(body.inputs):
                return tuple(part for key in body.inputs for part in inputs[key])
            return body.content
    return None


def _events_of_turn(turn: Turn) -> list[Event]:
    """Return the events of the agent in this turn, and the inputs of the turn: the last ones of the window."""
    found: list[Event] = []
    missing: set[str] | None = None
    for event in reversed(turn.log.window.events):
        body = event.data
        if missing is not None:
            if isinstance(body, InputAdded) and body.key in missing:
                missing.discard(body.key)
                found.append(event)
        elif isinstance(body, SubagentStarted) and (*event.path, body.child) == turn.path:
            found.append(event)
            break
        elif event.turn == turn.id and event.path == turn.path:
            found.append(event)
            missing = set(body.inputs) if isinstance(body, TurnStarted) else None
        if missing is not None and not missing:
            break
    return found[::-1]


def _latest_events(turn: Turn, path: AgentPath) -> Iterable[Event]:
    """Yield the events of this turn at ``path``, the last one first."""
    for event in reversed(turn.log.window.events):
        if event.turn == turn.id and event.path == path:
            yield event
        elif event.turn and event.turn != turn.id:
            return


def _path_of(state: RouterState) -> AgentPath:
    """Return the path of the active agent's last run."""
    return tuple(state.child.split("/"))


def _has_started(turn: Turn, child: str) -> bool:
    bodies = (event.data for event in _latest_events(turn, turn.path))
    return any(isinstance(body, SubagentStarted) and body.child == child for body in bodies)


def _partial_text(turn: Turn, path: AgentPath) -> str:
    """Return the last text of a stopped agent, or of an agent below it; ``""`` for none in this turn."""
    for event in reversed(turn.log.window.events):
        if event.turn and event.turn != turn.id:
            break
        if event.path[: len(path)] == path and isinstance(event.data, MessageCompleted):
            text = text_of(event.data.content)
            if text:
                return text
    return ""


def _has_script_ended(turn: Turn, path: AgentPath) -> bool:
    """Return whether the agent at ``path`` is a script that has ended and accepts no more input."""
    bodies = (event.data for event in _latest_events(turn, path))
    ends = (body.answer for body in bodies if isinstance(body, ScriptAnswered) and body.name == SCRIPT_END)
    return next(ends, None) not in OPEN_OUTCOMES
