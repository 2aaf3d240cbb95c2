"""The scopes of semantic memory: of a user, a project, a resource, or of all."""

from typing import Literal, TypeAlias, get_args

from vaka.core.types.errors import InvalidInput
from vaka.memory.owner import encode_name

MemoryScope: TypeAlias = Literal["user", "project", "resource", "global"]
MEMORY_SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)


def memory_scope(scope: MemoryScope = "user", *, user: str = "", project: str = "", resource: str = "") -> str:
    """Return the name of a scope in the store. Raises ``InvalidInput`` when it lacks an id: memory is not shared so.

    A project or resource of a user is below the scope of that user, and is erased with it.
    """
    if scope not in MEMORY_SCOPES:
        raise InvalidInput(f"scope {scope!r} must be one of {', '.join(MEMORY_SCOPES)}")
    needed = {"user": user, "project": project, "resource": resource, "global": "-"}[scope]
    if not needed:
        raise InvalidInput(f"semantic memory of scope {scope!r} needs the id of the {scope}")
    parts = [("users", user)] if scope != "global" else []
    parts += [("projects", project)] if scope in ("project", "resource") else []
    parts += [("resources", resource)] if scope == "resource" else []
    return "/".join(f"{kind}/{encode_name(id)}" for kind, id in parts if id)


def is_owned_scope(name: str) -> bool:
    """Whether the memories of a scope belong to one user, and are erased with them."""
    return name.startswith("users/")


def is_below(name: str, above: str) -> bool:
    """Whether a scope is another one, or below it."""
    return name == above or name.startswith(f"{above}/")
