import pytest

import pyluau
from pyluau import OptLevel, State


def test_bytecode_runs(state: State) -> None:
    assert state.load(pyluau.compile("local a = ... return a * 2"))(21) == 42


def test_bytecode_of_a_state_runs_in_another(state: State) -> None:
    with State() as other:
        assert other.load(state.compile("return 1", OptLevel.O0), "=there")() == 1


def test_the_chunk_name_is_set_when_it_is_loaded(state: State) -> None:
    with pytest.raises(pyluau.LuauError, match=r"^there:2: x"):
        state.load(state.compile("\nerror('x')"), "=there")()


def test_the_environment_is_set_when_it_is_loaded(state: State) -> None:
    code = state.compile("x += 1 return x")
    assert state.load(code, env={"x": 1})() == 2
    env = state.environment({"x": 10})
    state.load(code, "=a", env)()
    assert env["x"] == 11


@pytest.mark.parametrize(
    "spoil",
    [
        lambda code: b"",
        lambda code: b"\x06\x03\x00",
        lambda code: code[:20],
        lambda code: code[:-1],
        lambda code: code + b"\0",
        lambda code: code[:-1] + bytes([code[-1] ^ 1]),
        lambda code: b"x" + code,
    ],
)
def test_bytecode_that_was_changed_is_refused(state: State, spoil: object) -> None:
    with pytest.raises(pyluau.BytecodeError):
        state.load(spoil(pyluau.compile("return 1")))  # type: ignore[operator]  # a lambda of the list above


def test_bytecode_can_be_shared_with_a_key() -> None:
    code = pyluau.compile("return 1", key=b"secret")
    with State(key=b"secret") as state, State(key=b"other") as other, State() as plain:
        assert state.load(code)() == 1
        assert state.load(state.compile("return 2"))() == 2
        for stranger in (other, plain):
            with pytest.raises(pyluau.BytecodeError, match="another key"):
                stranger.load(code)


def test_a_syntax_error_is_raised_by_compile() -> None:
    with pytest.raises(pyluau.LuauSyntaxError, match=r"^mine:3: ") as caught:
        pyluau.compile("\n\nx x", chunkname="@mine")
    assert caught.value.line == 3
    with pytest.raises(pyluau.LuauSyntaxError, match=r'^\[string "x x"\]:1: '):
        pyluau.compile("x x", chunkname="x x")


def test_bytecode_is_not_accepted_as_source(state: State) -> None:
    with pytest.raises(pyluau.LuauSyntaxError):
        state.execute(pyluau.compile("return 1"))
