"""The process in which the model runs: llama.cpp's own HTTP server, started as told on stdin.

It goes when its owner goes: the kernel sees to that where it can, and the end of stdin says the same everywhere.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from importlib import import_module, resources
from typing import Any

import msgspec

from vaka.models.llama.order import Failed, Loaded, Order, Report

TEMPERATURE = 0.0
"""A small model that is free to choose chooses badly; this also makes its answers repeatable."""
REPEAT, REPEAT_WITHIN = 1.05, 64
"""Just enough against loops; more of it forbids the numbers and names of a question in the arguments of a call."""
CACHED_PROMPTS = 256
"""Megabytes for conversations that wait for their next turn."""
ERRORS_ONLY = 1
_LONGEST_ORDER = 64 * 1024
_PR_SET_PDEATHSIG = 1


def library() -> Any:
    """Return llama.cpp. It belongs to an extra, and no other process should load it."""
    return import_module("xllamacpp")


def template() -> str:
    """Return the chat template that makes the model call tools."""
    return resources.files("vaka.models.llama").joinpath("chat.jinja").read_text("utf-8")


def parameters(order: Order) -> Any:
    """Return what the server is to do, in its own words."""
    settings, params = order.settings, library().CommonParams()
    params.model.path = order.weights
    params.model_alias = {"local"}
    params.hostnames, params.port = [order.host], order.port
    params.api_keys = [order.key] if order.key else []
    params.n_ctx, params.n_parallel = settings.context * settings.parallel, settings.parallel
    params.n_predict = settings.max_tokens
    for processors in (params.cpuparams, params.cpuparams_batch):
        processors.n_threads, processors.poll = settings.threads, 0
    params.use_jinja, params.chat_template = True, template()
    params.sampling.temp = TEMPERATURE
    params.sampling.penalty_repeat, params.sampling.penalty_last_n = REPEAT, REPEAT_WITHIN
    params.cache_ram_mib = CACHED_PROMPTS
    params.verbosity, params.warmup = ERRORS_ONLY, False
    params.ui = params.endpoint_slots = params.endpoint_props = False  # nobody needs to look into others' prompts
    params.cors_origins, params.cors_credentials = "", False  # no page in a browser has business here
    return params


def free(host: str, port: int) -> str:
    """Return why a server cannot listen there, ``""`` when it can. Its own answer would be a crash."""
    if not 0 <= port <= 65535:
        return f"cannot listen on {host}:{port}: a port is a number from 0, for any that is free, to 65535"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[0][4])
    except (OSError, UnicodeError) as error:
        return f"cannot listen on {host}:{port}: {getattr(error, 'strerror', '') or error}"
    return ""


def die_with(owner: int) -> None:
    """Have the kernel end this process when its owner ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != owner:  # it was gone before the kernel knew that it matters
        raise SystemExit(0)


def end_with(source: int) -> None:
    """End this process when ``source`` ends."""
    with contextlib.suppress(OSError):
        while os.read(source, 4096):
            continue  # nothing more is expected, and nothing more counts
    os._exit(0)


def take_stdout() -> int:
    """Return the pipe to the owner; what libraries print goes to stderr, where it is kept for an error's message."""
    target = os.dup(1)
    os.dup2(2, 1)
    return target


def read_order(source: int) -> Order:
    """Return the first line of ``source``; raises ``ValueError`` when it is no order."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(source, 1) if len(line) < _LONGEST_ORDER else b""
        if not piece:
            raise ValueError("expected one line with an order on stdin")
        line += piece
    return msgspec.json.decode(line, type=Order)


def start(order: Order) -> tuple[Report, Any]:
    """Load the model and return what to report, and the server to keep."""
    taken = free(order.host, order.port)
    if taken:
        return Failed(taken), None
    try:
        server = library().Server(parameters(order))
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        return Failed(str(error) or type(error).__name__), None
    return Loaded(server.listening_address), server


def main() -> int:
    """Serve until stdin ends."""
    target = take_stdout()
    order = read_order(0)
    die_with(order.owner)
    threading.Thread(target=end_with, args=(0,), daemon=True).start()
    report, server = start(order)
    os.write(target, msgspec.json.encode(report) + b"\n")
    if server is None:
        return 1
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
