"""The program of the server process: llama.cpp's HTTP server, which exits with its owner."""

import contextlib
import os
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from vaka.models.local import LaunchReport, LaunchSpec
from vaka.system import libc

TEMPERATURE = 0.0
"""A small model samples badly; greedy decoding also makes its answers repeatable."""
REPEAT_PENALTY, REPEAT_WINDOW = 1.05, 64
"""Just enough against loops; more would suppress the numbers and names of a question in the arguments of a call."""
PROMPT_CACHE_MIB = 256
"""Megabytes for the cached prompts of idle conversations."""
ERROR_VERBOSITY = 1
_MAX_SPEC_BYTES = 64 * 1024


def llama_library() -> Any:
    """Return llama.cpp, which is part of an extra, and loaded in this process only."""
    return import_module("xllamacpp")


def server_parameters(spec: LaunchSpec) -> Any:
    """Return the launch spec as llama.cpp's parameters."""
    settings, params = spec.settings, llama_library().CommonParams()
    params.model.path = spec.weights
    params.model_alias = {"local"}
    params.hostnames, params.port = [spec.host], spec.port
    params.api_keys = [spec.key] if spec.key else []
    params.n_ctx, params.n_parallel = settings.context * settings.parallel, settings.parallel
    params.n_predict = settings.max_tokens
    for processors in (params.cpuparams, params.cpuparams_batch):
        processors.n_threads, processors.poll = settings.threads, 0
    template = Path(__file__).with_name("chat.jinja")  # makes the model call tools
    params.use_jinja, params.chat_template = True, template.read_text("utf-8")
    params.sampling.temp = TEMPERATURE
    params.sampling.penalty_repeat, params.sampling.penalty_last_n = REPEAT_PENALTY, REPEAT_WINDOW
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.verbosity, params.warmup = ERROR_VERBOSITY, False
    params.ui = params.endpoint_slots = params.endpoint_props = False  # they would show the prompts of other clients
    params.cors_origins, params.cors_credentials = "", False  # web pages must not reach the server
    return params


def listen_error(host: str, port: int) -> str:
    """Return why a server cannot listen there, ``""`` if it can: llama.cpp itself would crash."""
    if not 0 <= port <= 65535:
        return f"cannot listen on {host}:{port}: a port is a number from 0, for any that is free, to 65535"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        return f"cannot listen on {host}:{port}: {getattr(error, 'strerror', '') or error}"
    return ""


def exit_with_owner(owner: int) -> None:
    """Have the kernel kill this process when its owner exits, on Linux."""
    with contextlib.suppress(OSError):  # other systems have no prctl
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # the owner exited before the call above
        raise SystemExit(0)


def exit_when_closed(source: int) -> None:
    """Exit at the end of ``source``."""
    with contextlib.suppress(OSError):
        while os.read(source, 4096):
            continue  # further input is ignored
    os._exit(0)


def read_launch_spec(source: int) -> LaunchSpec:
    """Return the launch spec in the first line of ``source``. Raises ``ValueError`` for an invalid one."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(source, 1) if len(line) < _MAX_SPEC_BYTES else b""
        if not byte:
            raise ValueError("expected one line with a launch spec on stdin")
        line += byte
    return msgspec.json.decode(line, type=LaunchSpec)


def start_server(spec: LaunchSpec) -> tuple[LaunchReport, Any]:
    """Load the model; return the report, and the server, which lives as long as the object."""
    problem = listen_error(spec.host, spec.port)
    if problem:
        return LaunchReport(failure=problem), None
    try:
        server = llama_library().Server(server_parameters(spec))
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        return LaunchReport(failure=str(error) or type(error).__name__), None
    return LaunchReport(url=server.listening_address), server


def main() -> int:
    """Serve until stdin ends."""
    target = os.dup(1)
    os.dup2(2, 1)  # the output of libraries goes to stderr, which the owner shows in errors
    spec = read_launch_spec(0)
    exit_with_owner(spec.owner)
    threading.Thread(target=exit_when_closed, args=(0,), daemon=True).start()
    report, server = start_server(spec)
    os.write(target, msgspec.json.encode(report) + b"\n")
    if server is None:
        return 1
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
