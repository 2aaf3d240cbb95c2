"""``__builtin``: the compatibility surface, which returns errors instead of raising them."""

import pytest

from tests.luau.surfaces.surface_fixtures import DictValues, FakeNetwork, make_services, run_for_result, run_script
from vaka.core.ports.net import NetResponse
from vaka.luau.services import MemoryCache
from vaka.testing.clock import FakeClock

PLAIN = NetResponse(status=404, headers=(("Content-Type", "text/plain"), ("X-A", "1"), ("X-A", "2")), body=b"no")


async def test_http_returns_the_response_itself() -> None:
    network = FakeNetwork({"http://host/a": PLAIN})
    source = """
        local response = __builtin.http{url = "http://host/a", method = "post", headers = {["X-Key"] = 1}, body = "b"}
        return response.status, response.body, response.headers["Content-Type"], response.headers["x-a"], response.err
    """
    assert await run_script(source, services=make_services(network=network)) == [404, "no", "text/plain", "1, 2", None]
    (sent,) = network.sent
    assert (sent.method, sent.headers, sent.body, sent.timeout) == ("POST", (("X-Key", "1"),), b"b", 30.0)


async def test_http_works_in_the_main_coroutine_and_in_others() -> None:
    source = """
        local results = {}
        local function get() table.insert(results, __builtin.http{url = "http://host/a"}.status) end
        get()
        local thread = coroutine.create(get)
        assert(coroutine.resume(thread))
        assert(coroutine.status(thread) == "suspended" and #results == 1)
        coroutine.wrap(get)()
        return results
    """
    assert await run_for_result(source, services=make_services(network=FakeNetwork({"http://host/a": PLAIN}))) == [
        404,
        404,
        404,
    ]


@pytest.mark.parametrize("request_", ["nil", "1", "'http://x'", "true", "print"])
async def test_http_requires_a_table(request_: str) -> None:
    assert await run_script(f"return __builtin.http({request_})") == [{"err": "request must be a table"}]


@pytest.mark.parametrize("request_", ["{}", "{url = ''}", "{url = 1}", "{url = {}}"])
async def test_http_requires_a_url(request_: str) -> None:
    assert await run_script(f"return __builtin.http({request_})") == [{"err": "url is required"}]


async def test_a_request_that_fails_has_status_0() -> None:
    source = "return __builtin.http{url = 'http://unknown', timeout = 50}"
    assert await run_script(source, services=make_services(network=FakeNetwork())) == [
        {"status": 0, "err": "no server at 'http://unknown'"}
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("method = 'BREW'", "http: method must be one of"),
        ("timeout = 10000000", "http: timeout must be more than 0 and at most 120 seconds"),
        ("body = (function() local t = {} t.t = t return t end)()", "a table that holds itself has no JSON"),
    ],
)
async def test_an_invalid_request_has_status_0(fields: str, why: str) -> None:
    network = FakeNetwork({"http://host/a": PLAIN})
    answer = await run_for_result(
        f"return __builtin.http{{url = 'http://host/a', {fields}}}", services=make_services(network=network)
    )
    assert answer["status"] == 0
    assert why in answer["err"]
    assert network.sent == []


async def test_unknown_fields_of_a_request_are_ignored() -> None:
    network = FakeNetwork({"http://host/a": PLAIN})
    source = """return __builtin.http{
        url = "http://host/a", method = 1, headers = "x", body = {a = 1}, timeout = "soon", extra = print
    }.status"""
    assert await run_for_result(source, services=make_services(network=network)) == 404
    assert (network.sent[0].method, network.sent[0].body, network.sent[0].timeout) == ("GET", b'{"a":1}', 30.0)


async def test_a_binary_body_is_unchanged() -> None:
    every_byte = bytes(range(256)) * 3
    for length in (0, 1, 2, 3, 255, 256, 700):
        body = b"\xff" + every_byte[:length]
        network = FakeNetwork({"http://host/a": NetResponse(status=200, body=body)})
        source = "local r = __builtin.http{url = 'http://host/a', body = ...} return r.body, #r.body"
        assert await run_script(source, body, services=make_services(network=network)) == [body, len(body)]
        assert network.sent[0].body == body


async def test_values_are_stored_as_copies() -> None:
    values = DictValues()
    source = """
        local b = __builtin
        local list = {1, {a = true}}
        b.kvs_set("k", list)
        list[2].a = false
        local one = b.kvs_get("k")
        one[1] = 9
        local before = b.kvs_get("k")
        b.kvs_set("k", "text")
        local after = b.kvs_get("k")
        b.kvs_del("k")
        b.kvs_del("k")
        return before, after, b.kvs_get("k"), b.kvs_get("never")
    """
    assert await run_script(source, services=make_services(values=values)) == [
        [1, {"a": True}],
        "text",
        None,
        None,
    ]
    assert values.entries == {}


@pytest.mark.parametrize("value", ["'x'", "42", "3.14159", "true", "false", "{1, 2}", "{a = {b = 'é'}}", r"'\255\0'"])
async def test_every_type_of_value_is_stored(value: str) -> None:
    source = f"""
        __builtin.kvs_set("test:!@#日", {value})
        return __builtin.json_encode(__builtin.kvs_get("test:!@#日")) == __builtin.json_encode({value})
    """
    assert await run_for_result(source, services=make_services(values=DictValues())) is True


async def test_a_missing_key_returns_nil() -> None:
    values = DictValues()
    source = """
        local b = __builtin
        b.kvs_set("", 1) b.kvs_del("") b.kvs_set(nil, 1)
        return b.kvs_get(""), b.kvs_get(nil)
    """
    assert await run_script(source, services=make_services(values=values)) == [None, None]
    assert values.entries == {}


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("kvs_get({})", "key must be a string, not a table"),
        ("kvs_set(1, 2)", "key must be a string, not a number"),
        ("kvs_set('k', print)", "a function cannot be kept"),
        ("kvs_set('k', {print})", "a kept value cannot hold a function"),
        ("kvs_set('k', {[{}] = 1})", "a kept value cannot have a table for a key"),
        ("cache_set('k', coroutine.create(print))", "a thread cannot be kept"),
    ],
)
async def test_an_invalid_value_or_key_is_returned_as_an_error(call: str, why: str) -> None:
    services = make_services(values=DictValues(), cache=MemoryCache())
    assert await run_script(f"return __builtin.{call}", services=services) == [None, why]


async def test_cache_entries_expire() -> None:
    clock = FakeClock()
    services = make_services(cache=MemoryCache(clock=clock.monotonic))
    source = "__builtin.cache_set('a', {1}, 5) __builtin.cache_set('b', 2) return __builtin.cache_get('a')"
    read = "return __builtin.cache_get('a'), __builtin.cache_get('b')"
    assert await run_for_result(source, services=services) == [1]
    clock.advance(4.9)
    assert await run_script(read, services=services) == [[1], 2]
    clock.advance(0.1)
    assert await run_script(read, services=services) == [None, 2]
    await run_script("__builtin.cache_del('b')", services=services)
    assert await run_script(read, services=services) == [None, None]


async def test_the_cache_evicts_the_least_recently_used_entry() -> None:
    cache = MemoryCache(max_entries=2)
    cache.set("a", 1)
    cache.set("b", 2)
    assert cache.get("a") == 1
    cache.set("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    cache.set("c", 4, ttl=0)
    assert cache.get("c") is None


async def test_log_joins_with_tabs() -> None:
    lines: list[tuple[str, str]] = []
    source = "__builtin.log('a', 1, 1.5, true, nil, {}, print, nil) __builtin.log()"
    await run_script(source, services=make_services(log=lambda level, line: lines.append((level, line))))
    assert lines == [("info", "a\t1\t1.5\ttrue\tnil\t[table]\t[function]\tnil"), ("info", "")]
    await run_script(source)


async def test_log_works_where_a_script_cannot_yield() -> None:
    lines: list[str] = []
    source = """
        local t = setmetatable({}, {__index = function(_, key) __builtin.log("looked at", key) return key end})
        return t.x
    """
    assert await run_for_result(source, services=make_services(log=lambda _, line: lines.append(line))) == "x"
    assert lines == ["looked at\tx"]


async def test_only_listed_environment_variables_are_visible() -> None:
    source = "local e = __builtin.env return e('A'), e('EMPTY'), e('PATH'), e(''), e(nil), e(1), e({})"
    services = make_services(env={"A": "1", "EMPTY": ""})
    assert await run_script(source, services=services) == ["1", None, None, None, None, None, None]


async def test_time_is_the_scripts_clock_in_seconds() -> None:
    now = await run_for_result("return __builtin.time()")
    assert isinstance(now, float | int)
    assert now > 1_700_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("2024-01-01", 1704067200),
        ("2024-01-01T00:00:00Z", 1704067200),
        ("2024-01-01 00:00:00", 1704067200),
        ("2024-01-01T00:00", 1704067200),
        ("2024-01-01T00:00:00.500Z", 1704067200.5),
        ("2024-01-01T00:00:00.123456789Z", 1704067200.123456789),
        ("2024-01-01T08:00:00+08:00", 1704067200),
        ("2023-12-31T18:30:00-0530", 1704067200),
        ("2024-02-29", 1709164800),
        ("1969-12-31T23:59:59Z", -1),
        ("2000-03-01", 951868800),
        ("0001-01-01", -62135596800),
        ("9999-12-31T23:59:59Z", 253402300799),
    ],
)
async def test_times_are_parsed(text: str, seconds: float) -> None:
    assert await run_for_result("return __builtin.parse_time(...)", text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not a date",
        "2024",
        "2024-13-01",
        "2024-00-10",
        "2024-01-32",
        "2023-02-29",
        "1900-02-29",
        "24-01-01",
        "2024-01-01T25:00:00Z",
        "2024-01-01T00:61:00Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00X",
        "2024-01-01Tnoon",
        5,
        {},
        None,
    ],
)
async def test_an_invalid_time_is_nil(text: object) -> None:
    assert await run_script("return __builtin.parse_time(...)", text) == [None]


async def test_ids_are_uuids_of_version_4_and_differ() -> None:
    one, two = await run_script("return (__builtin.uuid()), (__builtin.uuid())")
    assert one != two
    assert len(one) == 36
    assert one[14] == "4"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("transformer('x', {model = 'm'})", "unknown transformer: x"),
        ("transformer('x')", "unknown transformer: x"),
        ("transformer('tts', {model = 'm'})", "unknown transformer: tts"),
        ("transformer('tts', {})", "model is required in config"),
        ("transformer('asr')", "model is required in config"),
        ("transformer('text', 'x')", "config must be a table, not a string"),
        ("transformer()", "transformer name is required"),
    ],
)
async def test_an_unknown_transformer_is_an_error(call: str, why: str) -> None:
    assert await run_script(f"return __builtin.{call}") == [None, why]


async def test_the_table_is_read_only() -> None:
    ok, why = await run_script("return pcall(function() __builtin.http = nil end)")
    assert (ok, why) == (False, "script:1: __builtin.http cannot be written")
    assert await run_script("return __builtin.nothing, getmetatable(__builtin)") == [None, "The metatable is locked"]
