"""Return values of functions as models and logs read them."""

import decimal
import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field

from tests.tools.context import CALL, FakeContext
from vaka.core.types.message import Image, Text, ToolResult
from vaka.tools import tool


class Kind(enum.Enum):
    A = "a"


class Word(str):
    __slots__ = ()


@dataclass
class Point:
    x: int
    path: Path


@attrs.define
class Box:
    size: int


class Item(msgspec.Struct):
    name: str
    inner: Any = None


class Model(BaseModel):
    at: datetime
    my_name: str = Field(default="n", serialization_alias="myName")


class Pair(NamedTuple):
    a: int
    b: str


NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


async def call_returning(value: Any) -> Any:
    @tool
    async def function() -> Any:
        """Give something."""
        return value

    return await function.call(FakeContext(), {})


VALUES: list[tuple[Any, Any]] = [
    ("text", "text"),
    ("half \ud800", "half \ufffd"),
    (Word("w"), "w"),
    (None, None),
    (True, True),
    (5, 5),
    (2**70, str(2**70)),
    (1.5, 1.5),
    ([float("nan"), float("inf"), float("-inf")], ["NaN", "Infinity", "-Infinity"]),
    ({"a": [1, {"b": "\udfff"}]}, {"a": [1, {"b": "\ufffd"}]}),
    ({1: 2, "\ud800": 3}, {"1": 2, "\ufffd": 3}),
    ((1, 2), [1, 2]),
    ({3}, [3]),
    ([], []),
    (Kind.A, "a"),
    (decimal.Decimal("1.10"), "1.10"),
    (NOON, "2024-01-02T12:00:00Z"),
    (Path("a/b"), "a/b"),
    (Point(1, Path("p")), {"x": 1, "path": "p"}),
    (Box(2), {"size": 2}),
    (Item("n", Point(1, Path("p"))), {"name": "n", "inner": {"x": 1, "path": "p"}}),
    (Model(at=NOON), {"at": "2024-01-02T12:00:00Z", "myName": "n"}),
    ([Item("n", Model(at=NOON))], [{"name": "n", "inner": {"at": "2024-01-02T12:00:00Z", "myName": "n"}}]),
    (Pair(1, "b"), [1, "b"]),
    (Text(text="a\ud800"), Text(text="a\ufffd")),
    (Image(url="https://a.example/i.png"), Image(url="https://a.example/i.png")),
    ([Text(text="a"), Image(data="aGk=")], (Text(text="a"), Image(data="aGk="))),
    (
        ToolResult(call=CALL, content=(Text(text="\ud800"),), value={"a": float("nan")}),
        ToolResult(call=CALL, content=(Text(text="\ufffd"),), value={"a": "NaN"}),
    ),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=[repr(value)[:60] for value, _ in VALUES])
async def test_return_values_become_json_data(value: Any, expected: Any) -> None:
    result = await call_returning(value)
    assert result == expected
    assert type(result) is type(expected)
    msgspec.json.encode(result)


def _circle() -> Any:
    result: list[Any] = []
    result.append(result)
    return result


def _deep() -> Any:
    result: list[Any] = []
    for _ in range(10_000):
        result = [result]
    return result


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"x", "it returned bytes; return text, or a part such as Image"),
        (lambda: bytearray(b"x"), "it returned bytes"),
        (lambda: memoryview(b"x"), "it returned bytes"),
        (object, "it returned object, which is not JSON data"),
        (lambda: [object()], "it returned list, which is not JSON data (object is not JSON data)"),
        (lambda: 1j, "it returned complex, which is not JSON data"),
        (lambda: {(1, 2): 3}, "it returned dict, which is not JSON data"),
        (_circle, "nested too deeply, or contains itself"),
        (_deep, "nested too deeply, or contains itself"),
        (lambda: ToolResult(call=CALL, value=b""), "it returned bytes"),
    ],
)
async def test_a_value_that_json_cannot_express_is_a_failed_result(make: Callable[[], Any], message: str) -> None:
    result = cast(ToolResult, await call_returning(make()))
    assert isinstance(result, ToolResult)
    assert (result.failed, result.reason, result.call) == (True, "error", CALL)
    assert result.text.startswith("function ran, but ")
    assert message in result.text
