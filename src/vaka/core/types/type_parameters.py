"""The type parameters of agents, tools and responses: dependencies and the value of an answer.

Type checkers know their defaults. Python 3.11 and 3.12 do not, so ``DefaultParameters`` fills them in at run time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
    Deps_co = TypeVar("Deps_co", covariant=True, default=Any)
    Deps_contra = TypeVar("Deps_contra", contravariant=True, default=Any)
    Out = TypeVar("Out", default=Any)
    Out_co = TypeVar("Out_co", covariant=True, default=Any)
    AgentOut_co = TypeVar("AgentOut_co", covariant=True, default=None)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Deps_co = TypeVar("Deps_co", covariant=True)
    Deps_contra = TypeVar("Deps_contra", contravariant=True)
    Out = TypeVar("Out")
    Out_co = TypeVar("Out_co", covariant=True)
    AgentOut_co = TypeVar("AgentOut_co", covariant=True)


class DefaultParameters:
    """Base class of generic classes that may be written with their first parameters only, as ``Agent[Deps]``."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            """Return the class with these type parameters; a missing one is ``Any``."""
            given = given if isinstance(given, tuple) else (given,)
            missing = len(getattr(cls, "__parameters__", ())) - len(given)
            return super().__class_getitem__((*given, *[Any] * missing))
