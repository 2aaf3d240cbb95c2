"""One turn at each protocol of the installed server: the text for the client, the request for the provider."""

from itertools import product

import pytest

from tests.journeys.answers import call, say
from tests.journeys.doors import DOORS
from tests.journeys.harbour import Harbour
from tests.journeys.provider import MODELS

STORES = ["sqlite", "postgres"]
COMBINATIONS = list(product(DOORS, STORES, MODELS))
SAMPLE = {
    (door, STORES[number % 2], list(MODELS)[number // 2 % 4]) for number, door in enumerate(DOORS)
}  # each door, store and API at least once


@pytest.mark.parametrize(
    ("door", "store", "wire"),
    [
        pytest.param(*each, id="-".join(each), marks=[] if each in SAMPLE else pytest.mark.exhaustive)
        for each in COMBINATIONS
    ],
)
def test_a_client_of_each_protocol_asks_an_agent_that_uses_a_tool(
    door: str, store: str, wire: str, request: pytest.FixtureRequest
) -> None:
    harbour: Harbour = request.getfixturevalue(f"{store}_harbour")
    question = f"How high is the tide for {door} with {store} and {wire}?"
    script = harbour.provider.script(question, call("tide", harbour="Hilo"), say("The tide ", "is at ", "0.4 m."))
    assert DOORS[door](harbour, f"guide-{wire}", question).endswith("The tide is at 0.4 m.")
    asked, with_result = script.requests
    assert "You are the guide of a harbour." in asked.text
    assert "metres" not in asked.text.replace("in metres", "")
    assert "0.4" in with_result.text
    harbour.check()
