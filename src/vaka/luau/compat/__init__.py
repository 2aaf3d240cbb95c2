"""What ``__builtin`` and ``rt`` need of their host beyond what ``ctx`` needs."""

from vaka.luau.compat.cache import Cache, cache_functions
from vaka.luau.compat.env import env_functions
from vaka.luau.compat.kvs import kvs_functions
from vaka.luau.host import ctx_functions
from vaka.luau.host.parts import Parts
from vaka.luau.script import Functions

__all__ = ["Cache", "compat_functions", "surface_functions"]


def compat_functions(parts: Parts) -> Functions:
    """Return what only ``__builtin`` and ``rt`` call."""
    return {**kvs_functions(parts), **cache_functions(parts), **env_functions(parts)}


def surface_functions(parts: Parts) -> Functions:
    """Return everything the three surfaces call."""
    return {**ctx_functions(parts), **compat_functions(parts)}
