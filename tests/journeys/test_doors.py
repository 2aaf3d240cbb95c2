"""One turn at each protocol of the installed server: the text for the client, the request for the provider."""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.journeys.answers import call, say
from tests.journeys.doors import ADDRESSES, DOORS
from tests.journeys.provider import MODELS
from tests.journeys.served_project import ServedProject

STORES = ["sqlite", "postgres"]
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/tide-1:streamGenerateContent?alt=sse",
}
COMBINATIONS = list(product(DOORS, STORES, MODELS))
SAMPLE = {(door, STORES[number % 2], list(MODELS)[number // 2 % 4]) for number, door in enumerate(DOORS)}
"""Each protocol, store and API at least once."""


def test_every_address_of_the_server_guide_has_a_story() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "server.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `/")]
    named = {address for row in rows for address in re.findall(r"`(/[^`]+)`", row)}
    others = {"/console", "/healthz", "/readyz", "/version", "/openapi.json"}
    assert named - others == set(ADDRESSES.values())
    assert set(DOORS) - set(ADDRESSES) == {"acp"}


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
    served: ServedProject = request.getfixturevalue(f"served_on_{store}")
    question = f"How many boats are there for {door} with {store} and {wire}?"
    path = str(served.project.folder / "harbour.py")
    script = served.provider.script(question, call("Read", file_path=path), say("There ", "are ", "two boats."))
    assert DOORS[door](served, f"guide-{wire}", question) == "There are two boats."
    asked, with_result = script.requests
    assert (asked.path, with_result.path) == (PATHS[wire], PATHS[wire])
    assert "You are the guide of a harbour." in asked.text
    assert "BOATS" not in asked.text
    assert r"BOATS = [\"vaka\", \"ama\"]" in with_result.text
    served.check()
