import json

import pytest

import pyluau
from pyluau import State


def test_a_stepper_accepts_and_returns_json(state: State) -> None:
    stepper = state.stepper("local a, b = ...; return request('x', a, b), {}", expose=True)
    output = stepper.start_json(b'[{"k": [1, 2.5, null, "\\u00fc"]}, []]')
    assert json.loads(output) == {
        "calls": [{"id": 1, "name": "x", "args": [{"k": {"1": 1, "2": 2.5, "4": "ü"}}, []]}],
        "dropped": [],
    }
    assert stepper.answer_json(1, b'["one", 2, true]') == b'{"done":["one",{}]}'


def test_a_failure_may_be_json(state: State) -> None:
    stepper = state.stepper("local ok, e = pcall(request, 'x') return e", expose=True)
    stepper.start_json(b"[]")
    assert stepper.fail_json(1, b'{"code": 7}') == b'{"done":[{"code":7}]}'


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b"[9007199254740993]", b"[" * 1000, b'["\\ud800"]'])
def test_bad_json_is_refused(state: State, data: bytes) -> None:
    with pytest.raises(pyluau.ConversionError):
        state.stepper("return 1").start_json(data)


@pytest.mark.parametrize(
    "source", ["return 0/0", "return 1/0", "return '\\xff'", "return buffer.create(1)", "return {[true] = 1}"]
)
def test_values_without_a_json_form_are_refused(state: State, source: str) -> None:
    with pytest.raises(pyluau.ConversionError, match="not JSON"):
        state.stepper(source).start_json(b"[]")
