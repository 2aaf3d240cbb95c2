"""The signature of a tool function: its parameters as a schema, and how arguments are bound to them."""

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from opcode import opmap
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Part, ToolResult
from vaka.tools.schema.json_schema import SchemaWriter
from vaka.tools.schema.json_types import JsonType, TypeMember, UnsupportedType, convert_members
from vaka.tools.schema.type_reader import TypeReader, make_member, parse_docstring, resolve_hints

_STREAM_TYPES = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_CONTENT_TYPES = (ToolResult, *typing.get_args(Part))


class ToolSignature(msgspec.Struct, frozen=True):
    """A function's parameters as a model sees them, and how arguments are passed."""

    members: tuple[TypeMember, ...]
    context_names: tuple[str, ...]
    positional: tuple[str, ...]
    """Names of positional-only parameters, the context included, in order."""
    extra_type: JsonType | None
    """The type of ``**kwargs``, if there is one."""
    description: str
    """The docstring without its parameters."""

    @property
    def known_names(self) -> frozenset[str] | None:
        """The allowed names, or None when any name is."""
        return None if self.extra_type is not None else frozenset(part.name for part in self.members)

    def json_schema(self) -> dict[str, Any]:
        writer = SchemaWriter()
        rest = False if self.extra_type is None else writer.write(self.extra_type) or True
        return writer.with_defs(writer.write_object(self.members, rest))

    def bind(self, context: Any, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of the call."""
        values = dict.fromkeys(self.context_names, context) | convert_members(self.members, arguments)
        if self.extra_type is not None:
            known = {part.name for part in self.members}
            rest = {key: item for key, item in arguments.items() if key not in known}
            values |= {key: self.extra_type.convert(item) for key, item in rest.items()}
        if not self.positional:
            return [], values
        defaults = {part.attribute: part.default for part in self.members}
        return [values.pop(name, defaults.get(name)) for name in self.positional], values


def unwrap_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def annotated_target_of(function: Callable[..., Any]) -> Any:
    """Return the function that carries the annotations of a callable."""
    function = unwrap_partial(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return inspect.unwrap(function)
    return type(function).__call__


def callable_name_of(function: Callable[..., Any]) -> str:
    """Return the name of a callable; for an object the name of its class."""
    function = unwrap_partial(function)
    return getattr(function, "__name__", None) or type(function).__name__


def docstring_of(function: Callable[..., Any]) -> str | None:
    """Return the docstring of a callable; for an object, the docstring of its ``__call__`` or its class."""
    function = unwrap_partial(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function.__doc__
    return type(function).__call__.__doc__ or type(function).__doc__


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Return whether calling a function returns an awaitable or async generator, and so does not block."""
    function = unwrap_partial(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


_SUSPENDING_OPS = {opmap[name] for name in ("GET_AWAITABLE", "GET_ANEXT", "YIELD_VALUE") if name in opmap}


def never_suspends(function: Callable[..., Any]) -> bool:
    """Return whether a function is ``async def`` without an ``await``: it runs to its end once it is started."""
    code = getattr(unwrap_partial(function), "__code__", None)
    if code is None or not inspect.iscoroutinefunction(unwrap_partial(function)):
        return False
    return _SUSPENDING_OPS.isdisjoint(code.co_code[::2])


def read_signature(function: Callable[..., Any], name: str, *, typed: bool = True) -> ToolSignature:
    """Return the signature of a function; raise ``InvalidInput`` naming a parameter that JSON cannot express.

    Without ``typed`` annotations are ignored and arguments are passed as plain JSON data.
    """
    target = annotated_target_of(function)
    docs = parse_docstring(docstring_of(function))
    with explain_unsupported(f"tool {name!r}"):
        hints = resolve_hints(target.__init__ if inspect.isclass(target) else target)
    reader = TypeReader()
    fixed = _partial_keywords_of(function)
    members = list[TypeMember]()
    contexts = list[str]()
    positional = list[str]()
    rest = None
    for parameter in _parameters_of(function, name):
        if parameter.name in fixed:
            continue
        hint = hints.get(parameter.name, parameter.annotation)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if is_context_hint(hint):
            contexts.append(parameter.name)
            continue
        where = f"tool {name!r}, parameter {parameter.name!r}"
        json_type = _parameter_type(reader, parameter, hint if typed else Any, where)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = json_type
            continue
        part = make_member(parameter.name, json_type, attribute=parameter.name, **_default_of(parameter))
        if _pydantic_field_of(parameter) is not None and not part.required:
            part = replace(part, absent=part.default)  # the function's own default is the field, not its value
        members.append(replace(part, description=docs.parameters.get(parameter.name, "")))
    return ToolSignature(tuple(members), tuple(contexts), tuple(positional), rest, docs.text)


def _parameters_of(function: Callable[..., Any], name: str) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"tool {name!r}: Python does not know its signature; wrap it in a function") from error


def _partial_keywords_of(function: Any) -> set[str]:
    """Return the keywords a partial has bound; the model neither sees nor changes them."""
    fixed: set[str] = set()
    while isinstance(function, functools.partial):
        fixed |= function.keywords.keys()
        function = function.func
    return fixed


@contextmanager
def explain_unsupported(where: str) -> Generator[None]:
    """Raise ``UnsupportedType`` as ``InvalidInput`` that says where the type is."""
    try:
        yield
    except UnsupportedType as error:
        raise InvalidInput(f"{where}: {error}") from error


def _parameter_type(reader: TypeReader, parameter: inspect.Parameter, hint: Any, where: str) -> JsonType:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise InvalidInput(f"{where}: *{parameter.name} has no name that a model could send; use a list")
    if parameter.name in {"self", "cls"} and hint is inspect.Parameter.empty:
        raise InvalidInput(f"{where}: this is a method without its object; use tool(Class().method)")
    field = _pydantic_field_of(parameter)
    with explain_unsupported(where):
        return reader.read(hint if field is None else Annotated[hint, field])


def _pydantic_field_of(parameter: inspect.Parameter) -> Any:
    """Return pydantic's ``Field(...)`` when it is the default."""
    return parameter.default if hasattr(parameter.default, "is_required") else None


def _default_of(parameter: inspect.Parameter) -> dict[str, Any]:
    field = _pydantic_field_of(parameter)
    if field is not None:
        return {"required": field.is_required(), "default": field.get_default(call_default_factory=True)}
    return {"required": parameter.default is inspect.Parameter.empty, "default": parameter.default}


def is_context_hint(hint: Any) -> bool:
    """Return whether a parameter is annotated with ``ToolContext``."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return is_context_hint(typing.get_args(hint)[0])
    if isinstance(origin, type) and origin is not types.UnionType:  # ToolContext[Deps]
        return is_context_hint(origin)
    if isinstance(hint, type):
        return ToolContext in hint.__mro__
    union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return union and any(is_context_hint(part) for part in typing.get_args(hint))


def output_schema_of(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the schema of a function's return value, or None when its annotation has none."""
    try:
        hints = resolve_hints(annotated_target_of(function))
        if "return" not in hints or _is_content_hint(hints["return"]):
            return None
        hint = hints["return"]
        if typing.get_origin(hint) in _STREAM_TYPES and typing.get_args(hint)[:1] == (str,):
            return {"type": "string"}
        writer = SchemaWriter(output=True)
        return writer.with_defs(writer.write(TypeReader().read(hint))) or None
    except UnsupportedType:
        return None


def _is_content_hint(hint: Any) -> bool:
    return hint in _CONTENT_TYPES or any(_is_content_hint(inner) for inner in typing.get_args(hint))
