"""WebSearch: the results of a provider, filtered by domain."""

from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from tests.net.http_server import Handler, encode_response, respond_with, serve
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Permissions
from vaka.core.ports.net import SearchResult
from vaka.core.ports.tool import World
from vaka.core.types.message import ToolResult
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin.web import DuckDuckGo, result_url, web_search
from vaka.tools.builtin.web import parse_results as read


def result(url: str, title: str, snippet: str = "") -> str:
    return (
        f'<div class="result results_links"><h2 class="result__title"><a rel="nofollow" class="result__a" href="{url}">'
        f'{title}</a></h2><a class="result__url" href="{url}">shown</a>'
        f'<a class="result__snippet" href="{url}">{snippet}</a></div>'
    )


def click_counter_url(url: str) -> str:
    return f"//duckduckgo.com/l/?uddg={quote(url, safe='')}&amp;rut=abc"


PAGE = "<html><body>" + "".join(
    [
        result(
            click_counter_url("https://example.org/a?b=c&d=e"),
            "The <b>First</b> &amp; best",
            "Some <b>words</b>\n here",
        ),
        result("https://duckduckgo.com/y.js?ad_domain=x", "An advertisement"),
        result("https://docs.example.org/b", "Second"),
        result(click_counter_url("https://example.org/a?b=c&d=e"), "The first again"),
        result(click_counter_url("javascript:alert(1)"), "Evil"),
        result("http://other.net/", "Third", "three"),
        result("https://notexample.org/", "Fourth"),
    ]
)


async def search(script: Handler, **arguments: Any) -> tuple[ToolResult, list[Any]]:
    store, model = MemoryStore(), ScriptedModel(call("WebSearch", **arguments), say("done"))
    async with serve(script) as server, Connector(NetworkRules(trusted=(server.authority,))) as network:
        async with runtime(store, permissions=Permissions(mode="bypassPermissions")) as rt:
            rt.env.world = World(network=network, search=DuckDuckGo(server.url("/html/")))
            await (await rt.open(agent(model, web_search), id="s")).run("Go.")
        return results_by_call(await read_log(store, "s"))["call_1"], server.requests


def page(body: str, status: str = "200 OK") -> Handler:
    return respond_with(encode_response(body.encode(), status, [("Content-Type", "text/html")]))


async def test_results_are_returned_in_order_once_each_with_their_target_addresses() -> None:
    results, requests = await search(page(PAGE), query="first things")
    assert results.value["results"] == [
        {"title": "The First & best", "url": "https://example.org/a?b=c&d=e", "snippet": "Some words here"},
        {"title": "Second", "url": "https://docs.example.org/b", "snippet": ""},
        {"title": "Third", "url": "http://other.net/", "snippet": "three"},
        {"title": "Fourth", "url": "https://notexample.org/", "snippet": ""},
    ]
    assert "1. The First & best\n   https://example.org/a?b=c&d=e\n   Some words here" in results.text
    assert (requests[0].method, parse_qs(requests[0].body.decode())["q"]) == ("POST", ["first things"])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"allowed_domains": ["example.org"]}, ["The First & best", "Second"]),
        ({"allowed_domains": ["*.Example.org."]}, ["The First & best", "Second"]),
        ({"blocked_domains": ["example.org", "other.net"]}, ["Fourth"]),
        ({"allowed_domains": ["example.org"], "blocked_domains": ["docs.example.org"]}, ["The First & best"]),
        ({"allowed_domains": ["nowhere.net"]}, []),
    ],
)
async def test_results_are_filtered_by_domain(more: dict[str, Any], expected: list[str]) -> None:
    results, _ = await search(page(PAGE), query="things", **more)
    assert [row["title"] for row in results.value["results"]] == expected
    assert results.value["left_out"] == 4 - len(expected)


async def test_at_most_eight_results_are_returned() -> None:
    many = "".join(result(f"https://a{n}.org/", f"T{n}") for n in range(30))
    results, _ = await search(page(many), query="many")
    assert len(results.value["results"]) == 8


async def test_an_empty_result_list_is_a_success_and_another_page_an_error() -> None:
    results, _ = await search(page('<div class="no-results">No results.</div>'), query="zzz")
    assert (results.failed, results.text) == (False, "nothing was found for 'zzz'")
    for script in (page("<p>Are you a person?</p>"), page("down", "503 Service Unavailable")):
        results, _ = await search(script, query="zzz")
        assert results.failed
        assert "127.0.0.1" in results.text


@pytest.mark.parametrize(
    "wrong",
    [{"query": "a"}, {"query": "ab", "allowed_domains": ["https://x/"]}, {"query": "ab", "blocked_domains": [""]}],
)
async def test_invalid_arguments_are_refused(wrong: dict[str, Any]) -> None:
    results, requests = await search(page(PAGE), **wrong)
    assert (results.failed, requests) == (True, [])


async def test_without_a_network_the_call_is_an_error() -> None:
    store, model = MemoryStore(), ScriptedModel(call("WebSearch", query="ab"), say("done"))
    async with runtime(store, permissions=Permissions(mode="bypassPermissions")) as rt:
        rt.env.world = World()
        await (await rt.open(agent(model, web_search), id="s")).run("Go.")
    assert "gives tools no network" in results_by_call(await read_log(store, "s"))["call_1"].text


def test_addresses_are_taken_out_of_click_counters() -> None:
    assert result_url("/l/?uddg=https%3A%2F%2Fa.org%2F%3Fx%3D1%26y%3D2") == "https://a.org/?x=1&y=2"
    assert [result_url(place) for place in ("/l/?uddg=file%3A%2F%2F%2Fx", "http://[::1", "mailto:x", "")][:3] == [
        "",
        "",
        "",
    ]


@pytest.mark.parametrize("piece", ['<a class="result__a" href="x">', "<a ", "<", '<a class="', "<div>", "<a href=''>"])
def test_a_hostile_page_is_parsed_in_linear_time(piece: str) -> None:
    assert all(isinstance(one, SearchResult) for one in read(piece * (200_000 // len(piece))))
