"""Registered secrets are not stored, and redaction does not break the log."""

import pytest

from tests.core.session.log_harness import (
    T1,
    LogHarness,
    approval_resolved,
    assert_same_after_reopening,
    input_added,
    log_line,
    tool_called,
    tool_completed,
    turn_started,
    write_simple_turn,
)
from vaka.core.session.redaction import Secrets
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Custom
from vaka.core.types.ids import EventScope
from vaka.core.types.message import Text


@pytest.mark.parametrize("secret", ["hunter22", 'with "quotes" \\ and\nlines', "päßwörd🔑", "0123456789", "</script>"])
async def test_a_secret_is_not_in_the_stored_bytes(secret: str) -> None:
    harness = LogHarness()
    log = await harness.open(secrets=Secrets([secret]))
    await log.append(
        T1,
        input_added(f"it is {secret}!"),
        turn_started("k"),
        tool_called("call_1", "look", where=[{secret: f"x{secret}"}]),
    )
    await log.append(T1, tool_completed("call_1", f"<{secret}>"), log_line(secret * 2))
    await log.append(EventScope(), Custom(name="mine", value=(secret, 5, None)))
    await log.append(EventScope(), StateChanged(key="quoted", value=f'{{"key": "{secret}"}}'))
    stored = b"".join(event.stored for event in await harness.stored_events()).decode()
    assert secret not in stored
    assert "hunter22" not in stored
    assert "[redacted]" in stored
    await assert_same_after_reopening(harness, log)


@pytest.mark.parametrize(
    "secret",
    [
        "progress",
        "arguments",
        "message_id",
        "tool.called",
        "completed",
        "assistant",
        "reasoning",
        "document",
        '"channel"',
        "00000000",
        "2023-11-14T22",
        '"session"',
        "session.opened",
        "turn.started",
        "step.started",
    ],
)
async def test_a_secret_that_equals_a_field_name_or_id_does_not_break_the_log(secret: str) -> None:
    harness = LogHarness()
    log = await harness.open(secrets=Secrets([secret]))
    for number in range(1, 4):
        await write_simple_turn(log, number)
    await log.append(EventScope(), approval_resolved(), log_line(f"it is {secret}"))
    last = (await harness.stored_events())[-1]
    assert last.data == log_line("it is [redacted]")
    assert log.state.calls == 3
    await assert_same_after_reopening(harness, log)


@pytest.mark.parametrize("value", ["", "abc", "secret7"])
def test_a_value_of_fewer_than_eight_characters_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match=f"a secret of {len(value)} characters cannot be registered"):
        Secrets([value])
    assert Secrets(["secret78"])


def test_of_two_secrets_at_one_position_the_longer_is_replaced() -> None:
    secrets = Secrets(["secret-1", "secret-1-and-more"])
    assert secrets.redact_struct(Text(text="secret-1-and-more secret-1")) == Text(text="[redacted] [redacted]")
