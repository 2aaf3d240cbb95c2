"""The same calls get the same decisions under the same settings, however tools describe themselves."""

import json

from tests.policy.decisions import FILE, decide_all, omit_repeated


def test_every_recorded_case_is_decided_as_recorded() -> None:
    assert omit_repeated(decide_all()) == json.loads(FILE.read_bytes())
