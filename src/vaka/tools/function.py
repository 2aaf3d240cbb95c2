"""Tools from Python functions."""

import copy
import functools
import inspect
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeGuard, TypeVar, get_args, overload

from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.content import clean
from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import Arguments, Effect, Problem, ToolSpec
from vaka.tools.names import sanitised
from vaka.tools.output import NotPlain, Returned, failure, is_content, plain
from vaka.tools.reader import Reader
from vaka.tools.shape import Unsupported
from vaka.tools.signature import Signature, doc_of, is_async, name_of, output_schema, read
from vaka.tools.strict import strict_schema
from vaka.tools.thread import in_thread
from vaka.tools.validate import Validator

P = ParamSpec("P")
R = TypeVar("R")
_UNSET: Any = object()
_EFFECTS: tuple[str, ...] = get_args(Effect)
_REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)


@dataclass(frozen=True, slots=True)
class Options:
    """What was said when a function was made a tool."""

    name: str | None = None
    description: str | None = None
    effect: Effect = "once"
    timeout: float | None = _UNSET
    poll: bool = False
    parameters: dict[str, Any] | None = None
    validate_output: bool = False

    def __post_init__(self) -> None:
        if self.effect not in _EFFECTS:
            raise InvalidInput(f"effect {self.effect!r} must be one of {', '.join(_EFFECTS)}")
        if isinstance(self.timeout, int | float) and not self.timeout > 0:
            raise InvalidInput(f"timeout {self.timeout!r} must be above zero, or None for no bound")
        object.__setattr__(self, "parameters", copy.deepcopy(self.parameters))


_DEFAULTS = Options()


class _Plan:
    """What is worked out of a function once, when first needed."""

    def __init__(self, function: Callable[..., Any], name: str, options: Options) -> None:
        raw = options.parameters
        self.signature: Signature = read(function, name, typed=raw is None)
        parameters = _written(self.signature, name) if raw is None else _given(raw, name)
        output = output_schema(function)
        if options.validate_output and output is None:
            raise InvalidInput(f"tool {name!r} needs a return annotation that JSON can express to validate its output")
        self.spec = ToolSpec(
            name=name,
            description=clean(options.description or self.signature.text),
            parameters=parameters,
            output=output,
            effect=options.effect,
            timeout=_timeout(options),
            poll=options.poll,
            strict=strict_schema(parameters).lossless,
        )
        self.waits = is_async(function)
        self.reader = Reader(parameters, None if raw is None else self.signature.known)
        self.output = Validator(output) if options.validate_output and output is not None else None


class _Once:
    """A place for a plan."""

    plan: _Plan | None = None


class FunctionTool(Generic[P, R]):
    """A tool that is a Python function; calling it calls the function."""

    def __init__(self, function: Callable[P, R], options: Options = _DEFAULTS, once: "_Once | None" = None) -> None:
        self.function = function
        self.options = options
        self.original_name = options.name or name_of(function)
        self.name = sanitised(self.original_name)
        self.__name__ = self.original_name
        self.__doc__ = doc_of(function)
        self._once = once or _Once()
        self._methods: _Once | None = None
        if not (options.description or (self.__doc__ or "").strip()):
            raise InvalidInput(f"tool {self.original_name!r} needs a docstring")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"

    def __get__(self, instance: object, owner: type | None = None) -> "FunctionTool[..., Any]":
        """Return the tool of an object's method, as the function itself would bind."""
        bind = getattr(self.function, "__get__", None)
        function = bind(instance, owner) if bind is not None else self.function
        if function is self.function:
            return self
        self._methods = self._methods or _Once()  # the methods of all objects share one plan
        return FunctionTool(function, self.options, self._methods)

    @property
    def spec(self) -> ToolSpec:
        """The tool as models, rules and people see it."""
        return (self._once.plan or self._ready()).spec

    def parse(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments ``raw`` stands for, or what is wrong with them."""
        return self._ready().reader.read(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Returned:
        """Call the function and return what it gave back as content or plain data."""
        plan = self._ready()
        try:
            args, kwargs = plan.signature.bind(context, arguments)
        except _REFUSALS as error:
            return failure(context.call, f"the arguments of {self.name} cannot be used: {error}", arguments=True)
        try:
            value = plain(await self._run(context, functools.partial(self.function, *args, **kwargs)))
        except NotPlain as error:
            return failure(context.call, f"{self.name} ran, but {error}")
        if plan.output is not None and not is_content(value) and (faults := plan.output.faults(value)):
            said = "; ".join(faults)
            return failure(context.call, f"{self.name} ran, but its result is not what it promises: {said}")
        return value

    def _ready(self) -> _Plan:
        if self._once.plan is None:
            self._once.plan = _Plan(self.function, self.name, self.options)
        return self._once.plan

    async def _run(self, context: ToolContext, work: Callable[[], Any]) -> Any:
        try:
            if self._ready().waits:
                value = work()
            else:
                value = await in_thread(lambda: _drained(context, work()), self.name)
            if inspect.isasyncgen(value):
                async with aclosing(value) as pieces:
                    return "".join([_shown(context, piece) async for piece in pieces])
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"the tool called exit({error.code!r})") from error


def _drained(context: ToolContext, value: Any) -> Any:
    """Return what a generator yields as one text, shown piece by piece; other values as they are."""
    if not inspect.isgenerator(value):
        return value
    pieces: list[str] = []
    for piece in value:
        pieces.append(_shown(context, piece))
        if context.stopping:
            value.close()
            break
    return "".join(pieces)


def _shown(context: ToolContext, piece: Any) -> str:
    if not isinstance(piece, str):
        raise NotPlain(f"it yielded {type(piece).__name__}; a tool that yields must yield text")
    text = clean(piece)
    context.emit(text)
    return text


def _timeout(options: Options) -> float | None:
    if options.timeout is _UNSET:
        return None if options.effect == "resume" else 60.0
    return options.timeout


def _written(signature: Signature, name: str) -> dict[str, Any]:
    try:
        return signature.schema()
    except Unsupported as error:
        raise InvalidInput(f"tool {name!r}: {error}") from error


def _given(parameters: dict[str, Any], name: str) -> dict[str, Any]:
    """A schema somebody wrote: it must be one of an object."""
    if parameters.get("type", "object") != "object":
        raise InvalidInput(f"tool {name!r}: parameters must be the JSON Schema of an object")
    return {"type": "object", "properties": {}, **parameters}


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
) -> FunctionTool[P, R]: ...


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
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, ``@tool(effect="read")``, ``tool(function)``."""
    chosen = Options(**options) if options else _DEFAULTS

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function.function if isinstance(function, FunctionTool) else function, chosen)

    return make if fn is None else make(fn)


def as_tool(thing: "Tool | Callable[..., Any]") -> Tool:
    """Return a tool as it is and a function as a tool, always the same one for the same function."""
    if is_tool(thing):
        return thing
    function: Any = thing
    kept: FunctionTool[..., Any] | None = getattr(function, "__dict__", {}).get("__vaka_tool__")
    if kept is not None and kept.function is function:
        return kept
    made: FunctionTool[..., Any] = FunctionTool(function)
    if inspect.isfunction(function):
        function.__dict__["__vaka_tool__"] = made
    return made


def is_tool(thing: object) -> TypeGuard[Tool]:
    """Tell whether something is a tool, without asking for its spec: that may not be worked out yet."""
    if isinstance(thing, FunctionTool):
        return True
    if inspect.isfunction(thing):
        return False
    own = getattr(thing, "__dict__", {})
    return all(name in own or hasattr(type(thing), name) for name in ("spec", "parse", "call"))
