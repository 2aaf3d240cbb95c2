"""The doors of a server by feature. Each is imported when it is used: the modules of a feature that is off are not."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from vaka.feature import find_features
from vaka.server.health import door as health_door
from vaka.server.kit.door import Door, DoorFactory
from vaka.server.kit.operation import Operation
from vaka.server.rest.door import door as rest_door
from vaka.server.rest.door import list_operations
from vaka.server.rest.openapi import openapi_door


def _websocket() -> DoorFactory:
    from vaka.server.ws.connection import door

    return door


def _traces() -> DoorFactory:
    from vaka.server.rest.traces import door

    return door


def _debug() -> DoorFactory:
    from vaka.server.rest.debug import door

    return door


def _openai() -> DoorFactory:
    from vaka.server.openai_chat import door as chat_door
    from vaka.server.responses import door as responses_door

    return lambda service: Door([*chat_door(service).routes, *responses_door(service).routes])


def _anthropic() -> DoorFactory:
    from vaka.server.anthropic import door

    return door


def _console() -> DoorFactory:
    from vaka.server.console import door

    return door


def _agui() -> DoorFactory:
    from vaka.server.agui import door

    return door


def _ai_sdk() -> DoorFactory:
    from vaka.server.aisdk import door

    return door


def _a2a() -> DoorFactory:
    from vaka.server.a2a.door import door

    return door


FEATURE_DOORS: dict[str, Callable[[], DoorFactory]] = {
    "websocket": _websocket,
    "tracing": _traces,
    "debug_api": _debug,
    "openai_compat": _openai,
    "anthropic_compat": _anthropic,
    "ui": _console,
    "agui": _agui,
    "ai_sdk": _ai_sdk,
    "a2a": _a2a,
}
"""What loads the door of a feature, by its name in ``FEATURE_NAMES`` of ``config/server_tables.py``. The other names
belong to feature folders."""


def native_operations(features: Collection[str]) -> Sequence[Operation]:
    """Return the operations of the native API, with the operations of enabled features."""
    operations = list_operations()
    if "tracing" in features:
        from vaka.server.rest import traces

        operations += traces.OPERATIONS
    if "debug_api" in features:
        from vaka.server.rest import debug

        operations += debug.OPERATIONS
    return operations


def doors_of(features: Collection[str]) -> Iterator[DoorFactory]:
    """Yield the doors that are always open, the doors of enabled features, and the doors of feature folders."""
    yield health_door
    yield rest_door
    yield partial(openapi_door, native_operations(features))
    for feature, load in FEATURE_DOORS.items():
        if feature in features:
            yield load()
    for installed in find_features():
        is_on = not installed.server_feature or installed.server_feature in features
        if installed.load_door is not None and is_on:
            yield installed.load(installed.load_door)
