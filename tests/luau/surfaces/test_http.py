"""``ctx.http``: requests."""

import pytest

from tests.luau.surfaces.surface_fixtures import FakeNetwork, make_services, run_for_error, run_script
from vaka.core.ports.net import NetResponse

DATA = NetResponse(
    status=200, headers=(("content-type", "application/json"),), body=b'{"a": [1, null]}', url="http://host/a"
)


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete", "head", "options"])
async def test_each_method_has_a_function(method: str) -> None:
    network = FakeNetwork({"http://host/a": DATA})
    source = f"local r = ctx.http.{method}('http://host/a') return r.status, r.json, r.data == r.json, r.url"
    assert await run_script(source, services=make_services(network=network)) == [200, {"a": [1]}, True, "http://host/a"]
    assert network.sent[0].method == method.upper()


async def test_a_request_has_a_query_headers_a_body_and_a_timeout() -> None:
    network = FakeNetwork({"http://host/a": DATA})
    source = """
        ctx.http.request("post", "http://host/a?z=0#f", {
            query = {b = {1, 2.5}, a = "é &", c = true}, headers = {Accept = "x"}, body = {k = {1}}, timeout = 2.5,
            redirects = 0, max_bytes = 10,
        })
        ctx.http.put("http://host/a", {body = "text"})
        ctx.http.put("http://host/a", {body = {1}, headers = {["content-type"] = "x/y"}})
        ctx.http.put("http://host/a", {json = {}})
        ctx.http.put("http://host/a", {body = buffer.fromstring("b")})
    """
    await run_script(source, services=make_services(network=network))
    first, *others = network.sent
    assert first.url == "http://host/a?z=0&a=%C3%A9%20%26&b=1&b=2.5&c=true#f"
    assert (first.method, first.body, first.timeout, first.redirects, first.max_bytes) == (
        "POST",
        b'{"k":[1]}',
        2.5,
        0,
        10,
    )
    assert sorted(first.headers) == [("Accept", "x"), ("Content-Type", "application/json")]
    assert [(sent.headers, sent.body) for sent in others] == [
        ((), b"text"),
        ((("content-type", "x/y"),), b"[1]"),
        ((("Content-Type", "application/json"),), b"{}"),
        ((), b"b"),
    ]


async def test_headers_are_case_insensitive_and_cookies_are_not_joined() -> None:
    headers = (("X-A", "1"), ("Set-Cookie", "a=1, 2"), ("set-cookie", "b"))
    network = FakeNetwork({"http://host/a": NetResponse(status=200, headers=headers, body=b"no json")})
    source = "local r = ctx.http.get('http://host/a') return r.headers['X-a'], r.headers['Set-Cookie'], r.json, r.body"
    assert await run_script(source, services=make_services(network=network)) == ["1", ["a=1, 2", "b"], None, "no json"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("get()", "http.get: url must be a string, not nil"),
        ("get({})", "http.get: url must be a string, not a table"),
        ("get('u', 1)", "http.get: options must be a table, not a number"),
        ("get('u', {query = 1})", "http.get: query must be a table, not a number"),
        ("get('u', {timeout = 'x'})", "http.get: timeout must be a number, not a string"),
        ("get('u', {tiemout = 1})", "http.get: there is no option tiemout"),
        ("post('u', {body = print})", "http.post: body must be a string, not a function"),
        ("request(nil, 'u')", "http.request: method must be a string, not nil"),
        (
            "request('BREW', 'u')",
            "http: method must be one of DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, not 'BREW'",
        ),
        ("get('u', {timeout = -1})", "http: timeout must be more than 0 and at most 120 seconds"),
        ("get('u', {max_bytes = -1})", "http: max_bytes and redirects must not be negative"),
        ("get('u', {max_bytes = 1.5})", "http: Expected `int"),
        ("get('u', {query = {a = {b = 1}}})", "http: "),
        ("get('u', {headers = {1, 2}})", "http: headers must be a table with names, not a list"),
        ("get('http://unknown')", "no server at 'http://unknown'"),
    ],
)
async def test_http_raises_for_invalid_and_failed_requests(call: str, why: str) -> None:
    assert why in await run_for_error(f"ctx.http.{call}", make_services(network=FakeNetwork()))
