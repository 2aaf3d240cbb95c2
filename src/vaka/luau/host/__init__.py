"""The Python side of what scripts can call: one file for each table of ``ctx``."""

from vaka.luau.host.generate import agent_functions, generate_functions, invoke_functions
from vaka.luau.host.host_services import HostServices
from vaka.luau.host.http import http_functions
from vaka.luau.host.io import io_functions, log_functions, time_functions
from vaka.luau.host.memory import memory_functions
from vaka.luau.protocol import HostFunctions


def ctx_functions(services: HostServices) -> HostFunctions:
    """Return the host functions of ``ctx``; those whose service is missing raise an error in the script."""
    return {
        **http_functions(services),
        **generate_functions(services),
        **invoke_functions(services),
        **agent_functions(services),
        **memory_functions(services),
        **log_functions(services),
        **io_functions(services),
        **time_functions(services),
    }
