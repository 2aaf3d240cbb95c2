"""The CPU time that redaction of secrets adds to each delta."""

import time

from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.core.session.live_redaction import LiveRedactor
from vaka.core.session.redaction import Secrets
from vaka.core.types.ids import EventScope, MessageId
from vaka.core.types.progress import TextDelta
from vaka.matching.secrets import SECRET_FORMATS

_TARGET = 10.0
_SECRETS = ("sk-abcdefghijklmnopqrstuvwx", "hunter2-hunter2", "postgres://app:secret@db/app", "tr0ub4dor&3")
_TEXT = (
    "The log is one append-only file per session and everything else is a fold over it or a follower of it, so a new "
    "process that reads it sees the same state, however often the last one was killed in between and whatever ran. "
)
_CODE = """    async def fetch(self, url: str, headers: Mapping[str, str]) -> bytes:
        async with self.client.stream("GET", url, headers=headers) as response:
            return await read_body(response, limit=self.limits.body)

"""


def split_into_deltas(text: str, size: int, count: int) -> list[TextDelta]:
    """Repeat a text and cut it into ``count`` deltas of ``size`` characters."""
    whole = text * (count * size // len(text) + 1)
    return [
        TextDelta(message_id=MessageId("m"), block=0, offset=at * size, text=whole[at * size : (at + 1) * size])
        for at in range(count)
    ]


def _time_delta(pieces: list[TextDelta], secrets: Secrets) -> float:
    redactor, scope = LiveRedactor(), EventScope()
    start = time.process_time()
    for piece in pieces:
        for _ in redactor.redact_deltas(secrets, [(scope, piece)]):
            pass
    return (time.process_time() - start) / len(pieces) * 1e6


def measure_redaction(quick: bool) -> list[Row]:
    """Measure texts without secrets, in deltas of several sizes, code, and one with a secret in every sentence."""
    count, secrets = 2_000 if quick else 20_000, Secrets(_SECRETS, finders=(SECRET_FORMATS,))
    found: list[Row] = []
    cases: list[tuple[str, list[TextDelta], float | None]]
    cases = [(f"{size} characters", split_into_deltas(_TEXT, size, count), _TARGET) for size in (4, 12, 60)]
    cases.append(("12 characters of code", split_into_deltas(_CODE, 12, count), None))
    cases.append(("12 characters, full of secrets", split_into_deltas(_TEXT + _SECRETS[1], 12, count), None))
    for name, pieces, target in cases:
        _time_delta(pieces, secrets)
        with raised_priority() as how:
            value, low, high = MedianRange.of([_time_delta(pieces, secrets) for _ in range(7)])
        found.append(
            Row(
                name=f"redact a delta of {name}",
                value=value,
                unit="µs CPU",
                low=low,
                high=high,
                target=target,
                note=f"{len(_SECRETS)} secrets registered, formats on; {how}",
            )
        )
    return found
