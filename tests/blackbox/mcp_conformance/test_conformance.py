"""The conformance suite of the Model Context Protocol, run against vaka's server and vaka's client.

``make test-all`` installs the suite. After a change of the results, accept them with ``VAKA_RENEW_CONFORMANCE=1`` and
read the difference.
"""

import os
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from tests.blackbox.mcp_conformance import protocol_tools, served_tools, suite
from tests.blackbox.mcp_conformance.server import build_server
from vaka.config.options import Permissions
from vaka.runtime.runtime import Runtime

PAGE = suite.ROOT / "docs" / "reference" / "mcp-conformance.md"
START, END = "<!-- results -->\n", "\n<!-- end of results -->"


@pytest.mark.exhaustive
@pytest.mark.skipif(not suite.NODE.exists(), reason="the conformance suite is installed by make test-all")
def test_every_scored_scenario_passes_and_the_page_has_the_results(tmp_path: Path) -> None:
    results: dict[tuple[str, str], dict[str, str]] = {}
    with suite.fixture_server() as url:
        for revision in suite.REVISIONS:
            results["server", revision] = suite.check_server(url, revision, tmp_path / f"server-{revision}")
    for revision in suite.REVISIONS:
        results["client", revision] = suite.check_client(revision, tmp_path / f"client-{revision}")
    failed = {name for found in results.values() for name, result in found.items() if result == "failed"}
    assert failed == set(suite.expected_failures())
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    shown, after = rest.split(END)
    table = suite.result_table(results)
    if os.environ.get("VAKA_RENEW_CONFORMANCE"):
        PAGE.write_text(f"{before}{START}{table}{END}{after}", encoding="utf-8")
    else:
        assert shown == table


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_tools_of_the_suite_are_served_by_vaka(era: str) -> None:
    allowed = [tool.name for tool in served_tools.TOOLS]
    async with (
        Runtime(store="memory:", permissions=Permissions(ask="suspend", allow=allowed)) as runtime,
        Client(build_server(runtime), mode=era) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"ask_assistant", *allowed, *protocol_tools.TOOLS}
        mixed = await client.call_tool("test_multiple_content_types", {})
        assert [block.type for block in mixed.content] == ["text", "image", "resource"]
        (text,) = (await client.read_resource("test://static-text")).contents
        assert isinstance(text, types.TextResourceContents)
        assert text.text == "This is the content of the static text resource."


def test_every_expected_failure_is_on_the_page_with_its_reason() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert suite.EXPECTED.read_text(encoding="utf-8").count("\n  - ") == len(suite.expected_failures())
    for name, reason in suite.expected_failures().items():
        assert f"| `{name}` |" in text
        assert reason in text
