"""The Python side of what scripts can call: ``ctx``, ``__builtin`` and ``rt``."""

from vaka.luau.host.generate import agent_functions, generate_functions, invoke_functions
from vaka.luau.host.http import http_functions
from vaka.luau.host.io import io_functions, system_functions
from vaka.luau.host.storage import cache_functions, memory_functions, value_functions
from vaka.luau.host.transformers import transformer_functions
from vaka.luau.protocol import HostFunctions
from vaka.luau.services import HostServices

_FACTORIES = (
    http_functions,
    generate_functions,
    invoke_functions,
    agent_functions,
    memory_functions,
    io_functions,
    system_functions,
    value_functions,
    cache_functions,
    transformer_functions,
)


def surface_functions(services: HostServices) -> HostFunctions:
    """Return the host functions of ``ctx``, ``__builtin`` and ``rt``; functions without their service fail."""
    return {name: function for make in _FACTORIES for name, function in make(services).items()}
