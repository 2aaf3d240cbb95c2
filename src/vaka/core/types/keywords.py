"""Signatures, errors for unknown keywords, and the marks of options that users can set elsewhere."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Annotated, Any, ForwardRef, Literal, ParamSpec, TypeVar, get_origin

import msgspec

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind", bound=type[Any])
MAX_LINE = 80
"""The longest line in which ``help`` shows a signature."""
_MARGIN = " |  async "
_MODULE = re.compile(r"(?:\b[a-z_]\w*\.)+(?=\w)")
_OPTIONAL = re.compile(r"\bOptional\[(\w+(?:\[[^\[\]]*\])?)\]")
_UNPACKED = re.compile(r"\*<class '(\w+)'>")
_VARIANCE = re.compile(r"[~+-](?=[A-Z])|(?<=[a-z])_(?:co|contra)\b")


class Unset:
    """The default of an argument that is documented elsewhere; signatures show it as ``...``."""

    def __repr__(self) -> str:
        return "..."


class FoldedSignature(inspect.Signature):
    """A signature that is evaluated on first use, with short types, and one line for each parameter if it is long.

    ``pydoc`` writes the text of a signature as it is, and before Python 3.13 always in one line.
    """

    __slots__ = ("_function", "_is_awaited", "_name")

    def __init__(
        self, parameters: Sequence[inspect.Parameter] | None = None, *, return_annotation: Any = inspect.Signature.empty
    ) -> None:
        super().__init__(parameters, return_annotation=return_annotation)
        self._function: Callable[..., Any] | None = None
        self._name = ""
        self._is_awaited = False

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> "FoldedSignature":
        """Return the signature of a function, which is not evaluated yet."""
        signature = cls.__new__(cls)
        signature._function = function  # noqa: SLF001  # same class
        signature._name = function.__name__  # noqa: SLF001
        signature._is_awaited = False  # noqa: SLF001
        return signature

    def _evaluate(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            attributes = vars(function)
            own = attributes.pop("__signature__", None)  # this one, if it is not evaluated for a wrapper
            found = inspect.signature(function)
            attributes |= {} if own is None else {"__signature__": own}
            super().__init__([*found.parameters.values()], return_annotation=found.return_annotation)
            wrapped = inspect.unwrap(function)
            self._is_awaited = inspect.iscoroutinefunction(wrapped) and not inspect.iscoroutinefunction(function)

    @property
    def parameters(self) -> Any:
        self._evaluate()
        return super().parameters

    @property
    def return_annotation(self) -> Any:
        self._evaluate()
        return super().return_annotation

    def __str__(self) -> str:
        shown = list(self._list_parameters())
        returned = self.return_annotation
        shown_type = "" if returned is self.empty else _short_type(returned)
        if shown_type and self._is_awaited:  # help writes no ``async`` before a function that wraps a coroutine
            shown_type = f"Awaitable[{shown_type}]"
        end = f" -> {shown_type}" if shown_type else ""
        line = f"({', '.join(shown)}){end}"
        return line if len(_MARGIN + self._name + line) <= MAX_LINE else _fold(shown, end)

    def format(self, **_: object) -> str:
        """Return the text of the signature; ``pydoc`` calls this from Python 3.13 on."""
        return str(self)

    def _list_parameters(self) -> Iterable[str]:
        has_star, has_slash = False, True
        for parameter in self.parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                has_slash = False
            elif not has_slash:
                has_slash = True
                yield "/"
            if parameter.kind is parameter.VAR_POSITIONAL:
                has_star = True
            elif parameter.kind is parameter.KEYWORD_ONLY and not has_star:
                has_star = True
                yield "*"
            yield _show_parameter(parameter)
        if not has_slash:
            yield "/"


def _fold(shown: Sequence[str], end: str) -> str:
    """Return a signature with one line for each parameter, or more lines for a long parameter."""
    from textwrap import fill  # noqa: PLC0415  # only help needs it

    width = MAX_LINE - len(" |  ")
    texts = [f"{text}," for text in shown[:-1]] + [*shown[-1:]]
    lines = [fill(text, width, initial_indent="    ", subsequent_indent="        ") for text in texts]
    return "\n".join(["(", *lines, f"){end}"])


def _show_parameter(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    text = f"{'**' if parameter.kind is parameter.VAR_KEYWORD else star}{parameter.name}"
    has_type = parameter.annotation is not parameter.empty
    if has_type:
        text += f": {_short_type(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {parameter.default!r}" if has_type else f"{text}={parameter.default!r}"


def _short_type(annotation: Any) -> str:
    """Return a type without the names of modules, and without the quotes of a type that is not imported."""
    text = str(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))
    text = _OPTIONAL.sub(r"\1 | None", _UNPACKED.sub(r"Unpack[\1]", _VARIANCE.sub("", _MODULE.sub("", text))))
    return text.replace("'", "'" if "Literal" in text else "")


def fold_signatures(kind: Kind) -> Kind:
    """Decorate a class whose methods ``help`` shows with folded signatures."""
    for name, member in vars(kind).items():
        if isinstance(member, FunctionType) and (not name.startswith("_") or name.endswith("__")):
            vars(member)["__signature__"] = FoldedSignature.of_function(member)
    return kind


class Flag(msgspec.Struct, frozen=True):
    """Marks the field of an option group that is a flag on the command line, such as ``Flag("--max-steps")``.

    The field is also a setting, with the name of the flag unless a ``Key`` gives another one.
    """

    name: str
    help: str = ""
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    stored: str = ""
    """The name in logs, which a renamed flag keeps; default: the name of the setting."""
    recorded: bool = True
    """Whether the log of a session has it, so that the next run of the session applies it again."""
    widens: bool = False
    """Whether it may permit more, so that a run which applies it again says so; always true if the key widens."""


class Key(msgspec.Struct, frozen=True):
    """Marks the field of an option group that settings files and ``VAKA_…`` variables can set."""

    name: str = ""
    kind: Literal["", "text", "list", "whole", "count", "number", "seconds", "table"] = ""
    """How texts become values; default: by the type of the field."""
    default: Any = msgspec.UNSET
    """The value that ``vaka config show`` shows if nothing sets it; default: the default of the field."""
    choices: tuple[str, ...] = ()
    widens: bool = False
    """Whether it permits more, so that the files of a folder that is not trusted must not set it."""
    per_run: bool = False
    """Whether only ``--trust`` lets the files of a project set it, and no stored decision."""
    path: Literal["", "file", "folder"] = ""
    """Whether it names files or folders; relative ones are below the folder of the settings file."""
    unit: int = 1
    """How many of the field's units are one unit of the setting, such as the bytes of a mebibyte."""


class UnevaluatedSignature(msgspec.StructMeta):
    """The metaclass of structs of keyword arguments whose fields have types that are not imported at run time.

    msgspec evaluates all annotations for a signature, so ``help`` and ``inspect.signature`` would raise ``NameError``.
    """

    @property
    def __signature__(self) -> inspect.Signature:
        kinds = {
            name: kind
            for base in reversed(self.__mro__)
            for name, kind in vars(base).get("__annotations__", {}).items()
        }
        required = len(self.__struct_fields__) - len(self.__struct_defaults__)
        defaults = (*[msgspec.NODEFAULT] * required, *self.__struct_defaults__)
        return FoldedSignature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if default is msgspec.NODEFAULT else default,
                    annotation=_without_marks(kinds[name]),
                )
                for name, default in zip(self.__struct_fields__, defaults, strict=True)
            ]
        )


def _without_marks(kind: Any) -> Any:
    """Return the type of a field without its ``Flag`` and ``Key``; the text of a type that is not imported."""
    kind = kind.__origin__ if get_origin(kind) is Annotated else kind
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind


def find_near_names(name: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most ``n`` of the known names that are like ``name``, the most similar first."""
    from difflib import get_close_matches  # noqa: PLC0415  # only errors need it

    return get_close_matches(name, list(known), n, cutoff)


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """Return that there is nothing with this name, and which names are near, or which there are."""
    lower = {one.lower(): one for one in sorted(known)}
    near = [lower[one] for one in find_near_names(name.lower(), lower, n=3)]
    if near:
        return f"there is no {kind} {name!r}; did you mean {' or '.join(near)}?"
    some = ", ".join([*lower.values()][:MAX_NAMES]) + (" and others" if len(lower) > MAX_NAMES else "")
    return f"there is no {kind} {name!r}; {f'there are {some}' if lower else f'no {kind} is defined'}"


MAX_NAMES = 8
"""The names that an error shows at most."""


def unknown_keyword_error(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function does not take."""
    near = find_near_names(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose unknown keyword arguments are reported with a suggestion."""
    code: Any = getattr(function, "__code__")  # noqa: B009  # a Python function has one, a Callable need not
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @functools.wraps(function)
    def call_checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs and not known.issuperset(kwargs):
            unknown = next(name for name in kwargs if name not in known)
            raise unknown_keyword_error(function.__qualname__.removesuffix(".__init__"), unknown, known)
        return function(*args, **kwargs)

    vars(call_checked)["__signature__"] = FoldedSignature.of_function(function)
    return call_checked
