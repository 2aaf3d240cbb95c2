"""``Idempotency-Key``: a repeated request gets the response to the first request, also after a restart.

A record in the store has the hash of the request and, when it is known, the response. Only successful responses are
stored. The operations themselves can run twice without a second effect: the key is also the key of the turn's input,
the first decision about an approval counts, and the id of a new session is derived from the key. So a request that was
interrupted between its effect and its response runs again.

A response may quote a session. The response to a request to a session is therefore stored with the values of the
session, which are erased and deleted with it.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vaka.core.ports.env import format_timestamp
from vaka.core.ports.values import KeyValueStore, session_values_prefix
from vaka.core.types.errors import VakaError
from vaka.server.kit.bodies import read_bytes
from vaka.server.kit.guard import principal_of
from vaka.server.kit.identifiers import check_id
from vaka.server.kit.operation import Operation, RestHandler
from vaka.server.kit.problems import CLIENT_LEFT, Problem, problem_of
from vaka.server.kit.service import AgentService
from vaka.server.sse import EventStream

PREFIX = "server/idempotency/"
"""The keys of records; the day on which one was stored follows, so that old ones are found without reading them."""
MAX_STORED_BYTES = 256 * 1024
"""The size of a response that is stored; after a larger one, a repeated request is run again."""
DAY_SECONDS = 86_400
REPLAYED_KEY, DERIVED_ID_KEY = "vaka.replayed", "vaka.derived_id"


class IdempotencyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and, once there is one, its response."""

    hash: str
    at: float
    nonce: str
    """Unique: says whose record was stored first."""
    status: int = 0
    body: str = ""
    headers: Mapping[str, str] = {}


def read_key(request: Request) -> str:
    """Return the key of a request, ``""`` if it has none. Raises a ``Problem`` (400) for an invalid key."""
    key = request.headers.get("idempotency-key", "")
    if key:
        check_id(key, "Idempotency-Key")
    return key


def is_replay(request: Request) -> bool:
    """Return whether an equal request with the same key came before, whose response is not known."""
    return bool(request.scope.get(REPLAYED_KEY, False))


def derive_id(request: Request, prefix: str) -> str:
    """Return an id that depends on the caller, the address and the key; ``""`` without a key."""
    digest: str = request.scope.get(DERIVED_ID_KEY, "")
    return f"{prefix}_{digest[:24]}" if digest else ""


class IdempotentRequests:
    """Answers the requests of one server that have an ``Idempotency-Key``."""

    def __init__(self) -> None:
        self._running: set[tuple[str, str]] = set()
        """Namespace and name of the requests that this process answers now."""
        self._day = ""
        self._swept: set[tuple[str, str]] = set()
        """The namespaces and prefixes whose old records were removed on this day."""

    def protect(self, operation: Operation) -> Operation:
        """Return an idempotent operation so that it honours the key, another operation unchanged."""
        if not operation.idempotent:
            return operation
        handler = operation.handler

        async def answer(service: AgentService, request: Request) -> ASGIApp:
            if not read_key(request):
                return await handler(service, request)
            return await self._answer(service, request, operation.path, handler)

        return msgspec.structs.replace(operation, handler=answer)

    async def _answer(self, service: AgentService, request: Request, path: str, handler: RestHandler) -> ASGIApp:
        principal, body = principal_of(request), await read_bytes(request)
        runtime = await service.runtime_of(principal)
        name = _hash(principal.id, request.method, path, sorted(request.path_params.items()), read_key(request))
        running, now = (principal.namespace, name), runtime.env.clock.time()
        record = IdempotencyRecord(hash=_hash(request.url.query, body.hex()), at=now, nonce=secrets.token_hex(8))
        if running in self._running:
            detail = "a request with this Idempotency-Key is being answered; try again"
            raise Problem(409, "in_progress", detail, headers={"Retry-After": "1"})
        self._running.add(running)
        try:
            values = runtime.store.values
            place, known = await self._find_or_store(values, name, record, now)
            prefix = _response_prefix(request)
            if known is not None and prefix:
                known = _read_record(await values.get(prefix + place)) or known
            if known is not None and known.hash != record.hash:
                raise Problem(422, "key_reused", "this Idempotency-Key was used with another request; use a new one")
            if known is not None and known.status:
                headers = {**known.headers, "Idempotent-Replayed": "true"}
                return Response(known.body, known.status, headers, "application/json")
            request.scope[REPLAYED_KEY], request.scope[DERIVED_ID_KEY] = known is not None, name
            try:
                response = await handler(service, request)
            except (Problem, VakaError) as error:
                # A request that is refused leaves no record, so that its key can be used for a better one.
                if known is None and problem_of(error).status < CLIENT_LEFT:
                    await values.put(place, None)
                raise
            if isinstance(response, Response) and len(response.body) <= MAX_STORED_BYTES:
                await values.put(prefix + place, msgspec.to_builtins(_complete(record, response)))
            if known is not None and isinstance(response, Response | EventStream):
                response.headers["Idempotent-Replayed"] = "true"
            for swept in {PREFIX, prefix + PREFIX}:
                await self._sweep(values, principal.namespace, swept, now)
            return response
        finally:
            self._running.discard(running)

    async def _find_or_store(
        self, values: KeyValueStore, name: str, record: IdempotencyRecord, now: float
    ) -> tuple[str, IdempotencyRecord | None]:
        """Return the place of the record of a request, and the record of an earlier request if there is one."""
        today, yesterday = f"{PREFIX}{_day(now)}/{name}", f"{PREFIX}{_day(now - DAY_SECONDS)}/{name}"
        earlier = _read_record(await values.get(yesterday))
        if earlier is not None and earlier.at > now - DAY_SECONDS:
            return yesterday, earlier
        found = _read_record(await values.put_if_absent(today, msgspec.to_builtins(record)))
        return today, None if found is None or found.nonce == record.nonce else found

    async def _sweep(self, values: KeyValueStore, namespace: str, prefix: str, now: float) -> None:
        """Remove the records of days before yesterday, once a day."""
        if self._day != _day(now):
            self._day, self._swept = _day(now), set()
        if (namespace, prefix) in self._swept:
            return
        self._swept.add((namespace, prefix))
        oldest = f"{prefix}{_day(now - DAY_SECONDS)}"
        for key in await values.keys(prefix):
            if key < oldest:
                await values.put(key, None)


def _response_prefix(request: Request) -> str:
    """Return what the key of a response begins with: the prefix of the values of its session, if it has one."""
    session = request.path_params.get("session", "")
    return session_values_prefix(session) if session else ""


def _complete(record: IdempotencyRecord, response: Response) -> IdempotencyRecord:
    headers = {name: value for name, value in response.headers.items() if name in ("location", "etag")}
    body = bytes(response.body).decode()
    return msgspec.structs.replace(record, status=response.status_code, body=body, headers=headers)


def _read_record(value: Any) -> IdempotencyRecord | None:
    return None if value is None else msgspec.convert(value, IdempotencyRecord)


def _day(now: float) -> str:
    return format_timestamp(now)[:10]


def _hash(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
