"""Tools made from Python functions: the ``@tool`` decorator, the call, its thread, and the conversion of results."""

import asyncio
import contextvars
import copy
import functools
import hashlib
import inspect
import math
import os
import queue
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeGuard, TypeVar, get_args, overload

import msgspec

from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.keywords import Unset, unknown_keyword_error
from vaka.core.types.message import FailureReason, Part, Text, ToolResult, replace_surrogates
from vaka.core.types.tool import Effect, InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.traits import NO_TRAITS, ToolTraits
from vaka.core.types.type_parameters import DefaultParameters, Deps_contra
from vaka.tools.arguments import ArgumentReader
from vaka.tools.schema.json_schema import encode_unknown
from vaka.tools.schema.json_types import CONVERSION_ERRORS, is_object
from vaka.tools.schema.openai_strict import strict_schema
from vaka.tools.schema.signature import (
    ToolSignature,
    callable_name_of,
    docstring_of,
    explain_unsupported,
    is_async_callable,
    never_suspends,
    output_schema_of,
    read_signature,
)
from vaka.tools.validate import Validator, suggest_name


class JobOutcome:
    """The return value or the exception of a job; ``with outcome:`` around the job catches the exception."""

    value: Any = None
    error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True

    def get(self) -> Any:
        """Return the value or raise the error; ``SystemExit`` and the like, which end a loop, as ``RuntimeError``."""
        if self.error is None:
            return self.value
        if isinstance(self.error, Exception):
            raise self.error
        raise RuntimeError(f"the tool ended with {self.error!r}") from self.error


class WorkerThread(threading.Thread):
    """A daemon thread that runs one job at a time and then waits for the next."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], Callable[[], None]]] = queue.SimpleQueue()

    def run(self) -> None:
        """Run jobs. The thread joins the idle list before it notifies the loop, so that the next job can reuse it."""
        while True:
            notify = self.jobs.get()()
            keep = len(_idle_workers) < _MAX_IDLE
            if keep:
                _idle_workers.append(self)
            notify()
            del notify
            if not keep:
                return


_idle_workers: list[WorkerThread] = []
_MAX_IDLE = 8
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle_workers.clear)  # threads do not survive a fork


def _take_idle_worker() -> WorkerThread:
    try:
        return _idle_workers.pop()
    except IndexError:
        worker = WorkerThread()
        worker.start()
        return worker


async def run_in_thread(work: Callable[[], Any], name: str) -> Any:
    """Run blocking work in a daemon thread of its own, with the context variables of this task.

    When the waiting task is cancelled the thread runs on: it cannot be stopped, but it does not keep the
    process alive, and no other job waits for it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[JobOutcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: JobOutcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def job() -> Callable[[], None]:
        threading.current_thread().name = f"tool {name}"
        outcome = JobOutcome()
        with outcome:
            outcome.value = context.run(work)
        return functools.partial(_notify_loop, loop, functools.partial(deliver, outcome))

    _take_idle_worker().jobs.put(job)
    return (await done).get()


def _notify_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop is closed, so no task waits for the outcome
        pass


_PART_TYPES: tuple[type, ...] = get_args(Part)
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1

ToolReturn: TypeAlias = "ToolResult | Part | Sequence[Part] | JSON"
"""The values that a tool may return to the loop."""


class NotSerializable(ValueError):
    """A value that JSON cannot express."""


def normalize_output(value: Any) -> ToolReturn:
    """Return content unchanged, other values as JSON data; raise ``NotSerializable`` if JSON cannot express one."""
    if value is None or type(value) is bool or (type(value) is int and _MIN_INT <= value <= _MAX_INT):
        return value  # the checks below are slower
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(
            value, content=tuple(map(_clean_part, value.content)), value=_to_json(value.value)
        )
    if isinstance(value, _PART_TYPES):
        return _clean_part(value)
    if _is_sequence(value) and value and all(isinstance(item, _PART_TYPES) for item in value):
        return tuple(_clean_part(part) for part in value)
    return _to_json(value)


def is_content(value: Any) -> bool:
    """Return whether the result of ``normalize_output`` is parts or a ``ToolResult``, not data."""
    return isinstance(value, (ToolResult, tuple, *_PART_TYPES))


def failed_result(call: CallId, message: str, *, invalid_arguments: bool = False) -> ToolResult:
    """Return a failed result whose text is ``message``."""
    reason: FailureReason = "invalid_arguments" if invalid_arguments else "error"
    return ToolResult(call=call, content=(Text(text=replace_surrogates(message)),), failed=True, reason=reason)


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _clean_part(part: Any) -> Any:
    return msgspec.structs.replace(part, text=replace_surrogates(part.text)) if isinstance(part, Text) else part


def _to_json(value: Any) -> JSON:
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotSerializable(
            "it returned bytes; return text, or a part such as Image(media_type='image/png', data=<base64>)"
        )
    try:
        return _clean_json(msgspec.to_builtins(value, enc_hook=encode_unknown, str_keys=True))
    except RecursionError:
        raise NotSerializable("it returned data that is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, NotImplementedError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"it returned {type(value).__name__}, which is not JSON data ({error})") from error


def _clean_json(value: Any) -> JSON:
    """Make data safe for every JSON reader: no lone surrogates; NaN, infinities and integers over 64 bits as text."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if is_object(value):
        return {replace_surrogates(key): _clean_json(item) for key, item in value.items()}
    if _is_sequence(value):
        return [_clean_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        return str(value)
    return value


_match_valid_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch

_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def sanitize_name(name: str) -> str:
    """Return a name that every provider accepts: valid names unchanged, others always replaced by the same name."""
    if _match_valid_name(name):
        return name
    clean = _INVALID_CHARACTER.sub("_", name)
    if len(clean) <= 64 and clean.strip("_-"):
        return clean
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{clean[:55].strip('_') or 'tool'}_{digest}"


P = ParamSpec("P")

R = TypeVar("R")

D = TypeVar("D")

S = TypeVar("S")

_UNSET: Any = Unset()

_EFFECTS: tuple[str, ...] = get_args(Effect)


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of ``@tool``."""

    name: str | None = None
    description: str | None = None
    effect: Effect = "once"
    timeout: float | None = _UNSET
    poll: bool = False
    parameters: dict[str, Any] | None = None
    validate_output: bool = False
    traits: ToolTraits = NO_TRAITS

    def __post_init__(self) -> None:
        if self.effect not in _EFFECTS:
            raise InvalidInput(f"effect {self.effect!r} must be one of {', '.join(_EFFECTS)}")
        if isinstance(self.timeout, int | float) and not self.timeout > 0:
            raise InvalidInput(f"timeout {self.timeout!r} must be above zero, or None for no bound")
        if not isinstance(self.traits, ToolTraits):  # pyright: ignore[reportUnnecessaryIsInstance]  # from untyped code
            raise InvalidInput(f"traits must be ToolTraits(…), got {self.traits!r}")
        object.__setattr__(self, "parameters", copy.deepcopy(self.parameters))


_DEFAULTS = ToolOptions()


class _ToolDefinition:
    """Spec, signature and argument reader of a function; built once, on first use."""

    def __init__(self, function: Callable[..., Any], name: str, options: ToolOptions) -> None:
        raw = options.parameters
        self.signature: ToolSignature = read_signature(function, name, typed=raw is None)
        parameters = _parameters_schema(self.signature, raw, name)
        _check_traits(options.traits, parameters, name)
        output = output_schema_of(function)
        if options.validate_output and output is None:
            raise InvalidInput(f"tool {name!r} needs a return annotation that JSON can express to validate its output")
        timeout = options.timeout
        if timeout is _UNSET:
            timeout = None if options.effect == "resume" else 60.0
        description = replace_surrogates(options.description or self.signature.description)
        self.spec = ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            output=output,
            effect=options.effect,
            timeout=timeout,
            poll=options.poll,
            strict=strict_schema(parameters).lossless,
        )
        self.is_async = is_async_callable(function)
        self.never_suspends = never_suspends(function)
        self.argument_reader = ArgumentReader(parameters, None if raw is None else self.signature.known_names)
        self.output_validator = Validator(output) if options.validate_output and output is not None else None


class _DefinitionCell:
    """A definition that is not built yet, shared by all tools of one function."""

    definition: _ToolDefinition | None = None


class FunctionTool(DefaultParameters, Generic[P, R, Deps_contra]):
    """A tool that is a Python function; calling it calls the function."""

    def __init__(
        self, function: Callable[P, R], options: ToolOptions = _DEFAULTS, cell: "_DefinitionCell | None" = None
    ) -> None:
        self.function = function
        self.options = options
        self.traits = options.traits
        self.original_name = options.name or callable_name_of(function)
        self.name = sanitize_name(self.original_name)
        self.__name__ = self.original_name
        self.__doc__ = docstring_of(function)
        self._cell = cell or _DefinitionCell()
        self._method_cell: _DefinitionCell | None = None
        if not (options.description or (self.__doc__ or "").strip()):
            raise InvalidInput(f"tool {self.original_name!r} needs a docstring")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"

    def __get__(self, instance: object, owner: type | None = None) -> "FunctionTool[..., Any, Deps_contra]":
        """Return the tool of an object's method, as the function itself would bind."""
        bind = getattr(self.function, "__get__", None)
        function = bind(instance, owner) if bind is not None else self.function
        if function is self.function:
            return self
        self._method_cell = self._method_cell or _DefinitionCell()  # the methods of all objects share one definition
        return FunctionTool(function, self.options, self._method_cell)

    @property
    def never_suspends(self) -> bool:
        """Whether a call runs to its end without a turn of the event loop."""
        definition = self._cell.definition or self._load_definition()
        return definition.never_suspends and not self.traits.writes

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        return (self._cell.definition or self._load_definition()).spec

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments ``raw`` stands for, or what is wrong with them."""
        return (self._cell.definition or self._load_definition()).argument_reader.read(raw)

    async def call(self, context: ToolContext[Deps_contra], arguments: dict[str, Any]) -> ToolReturn:
        """Call the function and return its result as content or JSON data."""
        definition = self._cell.definition or self._load_definition()
        try:
            args, kwargs = definition.signature.bind(context, arguments)
        except CONVERSION_ERRORS as error:
            return failed_result(
                context.call, f"the arguments of {self.name} cannot be used: {error}", invalid_arguments=True
            )
        try:
            work = functools.partial(self.function, *args, **kwargs)
            running = self._run(context, work, definition.is_async)
            if self.traits.writes:
                running = self._run_recorded(context, arguments, running)
            value = normalize_output(await running)
        except NotSerializable as error:
            return failed_result(context.call, f"{self.name} ran, but {error}")
        validator = definition.output_validator
        if validator is not None and not is_content(value) and (faults := validator.find_faults(value)):
            return failed_result(
                context.call, f"{self.name} ran, but its result does not match its return type: {'; '.join(faults)}"
            )
        return value

    def _load_definition(self) -> _ToolDefinition:
        if self._cell.definition is None:
            self._cell.definition = _ToolDefinition(self.function, self.name, self.options)
        return self._cell.definition

    async def _run_recorded(
        self, context: ToolContext, arguments: dict[str, Any], running: Coroutine[Any, Any, Any]
    ) -> Any:
        from vaka.tools.written_files import record_written_files  # noqa: PLC0415  # few tools write files

        async with record_written_files(context, self.traits, arguments, self.spec.parameters):
            return await running

    async def _run(self, context: ToolContext, work: Callable[[], Any], is_async: bool) -> Any:
        try:
            if is_async:
                value: Any = work()
                if type(value) is CoroutineType:
                    return await value  # pyright: ignore[reportUnknownVariableType]  # any function may be a tool
            else:
                value = await run_in_thread(lambda: _drain_generator(context, work()), self.name)
            if inspect.isasyncgen(value):
                async with aclosing(value) as pieces:
                    return "".join([_emit_piece(context, piece) async for piece in pieces])
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"the tool called exit({error.code!r})") from error


def _drain_generator(context: ToolContext, value: Any) -> Any:
    """Return the text a generator yields and emit each piece; return other values unchanged."""
    if not inspect.isgenerator(value):
        return value
    pieces: list[str] = []
    for piece in value:
        pieces.append(_emit_piece(context, piece))
        if context.stopping:
            value.close()
            break
    return "".join(pieces)


def _emit_piece(context: ToolContext, piece: Any) -> str:
    if not isinstance(piece, str):
        raise NotSerializable(f"it yielded {type(piece).__name__}; a tool that yields must yield text")
    text = replace_surrogates(piece)
    context.emit(text)
    return text


def _parameters_schema(signature: ToolSignature, given: dict[str, Any] | None, name: str) -> dict[str, Any]:
    if given is not None:
        if given.get("type", "object") != "object":
            raise InvalidInput(f"tool {name!r}: parameters must be the JSON Schema of an object")
        return {"type": "object", "properties": {}, **given}
    with explain_unsupported(f"tool {name!r}"):
        return signature.json_schema()


def _check_traits(traits: ToolTraits, parameters: dict[str, Any], name: str) -> None:
    """Raise ``InvalidInput`` for traits that name an argument which the tool does not have."""
    known: dict[str, Any] = parameters.get("properties", {})
    if traits is NO_TRAITS or parameters.get("additionalProperties") is not False:
        return
    for argument in sorted(traits.argument_names - known.keys()):
        raise InvalidInput(f"tool {name!r}: its traits name the argument {argument!r}{suggest_name(argument, known)}")


class ToolDecorator(Protocol):
    """The result of ``@tool(…)``: it makes a tool of a function."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> FunctionTool[Concatenate[ToolContext[D], P], R, D]: ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[S, ToolContext[D], P], R], /
    ) -> FunctionTool[Concatenate[S, ToolContext[D], P], R, D]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> FunctionTool[P, R, object]: ...


@overload
def tool(
    fn: Callable[Concatenate[ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    timeout: float | None = ...,
    poll: bool = False,
    parameters: dict[str, Any] | None = None,
    validate_output: bool = False,
    traits: ToolTraits = NO_TRAITS,
) -> FunctionTool[Concatenate[ToolContext[D], P], R, D]: ...


@overload
def tool(
    fn: Callable[Concatenate[S, ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    timeout: float | None = ...,
    poll: bool = False,
    parameters: dict[str, Any] | None = None,
    validate_output: bool = False,
    traits: ToolTraits = NO_TRAITS,
) -> FunctionTool[Concatenate[S, ToolContext[D], P], R, D]: ...


@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    timeout: float | None = ...,
    poll: bool = False,
    parameters: dict[str, Any] | None = None,
    validate_output: bool = False,
    traits: ToolTraits = NO_TRAITS,
) -> FunctionTool[P, R, object]: ...


@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    timeout: float | None = ...,
    poll: bool = False,
    parameters: dict[str, Any] | None = None,
    validate_output: bool = False,
    traits: ToolTraits = NO_TRAITS,
) -> ToolDecorator: ...


def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, ``@tool(effect="read")``, ``tool(function)``."""
    for name in options:
        if name not in ToolOptions.__dataclass_fields__:
            raise unknown_keyword_error("tool", name, ToolOptions.__dataclass_fields__)
    chosen = ToolOptions(**options) if options else _DEFAULTS

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function.function if isinstance(function, FunctionTool) else function, chosen)

    return make if fn is None else make(fn)


def as_tool(thing: "Tool | Callable[..., Any]") -> Tool:
    """Return a tool unchanged, and a function as a tool: always the same tool for the same function."""
    if is_tool(thing):
        return thing
    function: Any = thing
    cached: FunctionTool[..., Any] | None = getattr(function, "__dict__", {}).get("__vaka_tool__")
    if cached is not None and cached.function is function:
        return cached
    tool: FunctionTool[..., Any] = FunctionTool(function)
    if inspect.isfunction(function):
        function.__dict__["__vaka_tool__"] = tool
    return tool


def is_tool(thing: object) -> TypeGuard[Tool]:
    """Return whether an object is a tool. Its spec is not read: building it may be expensive."""
    if isinstance(thing, FunctionTool):
        return True
    if inspect.isfunction(thing):
        return False
    own = getattr(thing, "__dict__", {})
    return all(name in own or hasattr(type(thing), name) for name in ("spec", "parse", "call"))
