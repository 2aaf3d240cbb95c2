import asyncio
import gc
import weakref
from typing import Any

import pytest

import pyluau
from pyluau import Lent, State


class Account:
    def __init__(self) -> None:
        self.owner = "Ada"
        self.note: Any = ""
        self.secret = "hunter2"
        self.peer: Account | None = None

    def deposit(self, amount: int, *more: int) -> tuple[str, int]:
        return self.owner, amount + sum(more)

    async def confirm(self) -> str:
        await asyncio.sleep(0)
        return "confirmed"

    def fail(self) -> None:
        raise OSError("/srv/private/accounts.db is locked")

    @property
    def broken(self) -> str:
        raise RuntimeError(f"secret is {self.secret}")


@pytest.fixture
def account() -> Account:
    return Account()


def lend(account: Account) -> Lent:
    names = ["owner", "note", "deposit", "confirm", "fail", "broken", "peer"]
    return Lent(account, names, writable=["note"])


def why(state: State, source: str, account: Lent) -> str:
    ok, message = state.eval(
        f"local a = ... local ok, e = pcall(function() {source} end) return ok, tostring(e)", account
    )
    assert ok is False
    return str(message)


def test_nothing_is_lent_without_being_asked_for(state: State, account: Account) -> None:
    with pytest.raises(pyluau.ConversionError):
        state.eval("...", account)
    with pytest.raises(pyluau.ConversionError):
        state.define("account", {"a": account})


def test_attributes_that_are_named_can_be_read_and_methods_called(state: State, account: Account) -> None:
    state.define("account", lend(account))
    assert state.eval("account.owner") == "Ada"
    assert state.eval("account:deposit(1, 2, 3)") == ("Ada", 6)
    assert state.eval("typeof(account), tostring(account)") == ("userdata", "object")


@pytest.mark.parametrize(
    "name", ["secret", "__class__", "__dict__", "__init__", "deposit.__func__", "_x", "", "nothing", "owner\\0"]
)
def test_no_other_attribute_can_be_read(state: State, account: Account, name: str) -> None:
    message = why(state, f"return a['{name}']", lend(account))
    assert "cannot be read" in message
    assert "Account" not in message


def test_a_method_has_no_attributes(state: State, account: Account) -> None:
    assert "attempt to index function" in why(state, "return a.deposit.__globals__", lend(account))


def test_private_names_cannot_be_lent(account: Account) -> None:
    for name in ("__class__", "_x", "__init__"):
        with pytest.raises(ValueError, match="private"):
            Lent(account, [name])
        with pytest.raises(ValueError, match="private"):
            Lent(account, [], writable=[name])
    with pytest.raises(TypeError, match="list of names"):
        Lent(account, "owner")


def test_only_writable_attributes_can_be_assigned(state: State, account: Account) -> None:
    state.eval("local a = ... a.note = {1, 2}", lend(account))
    assert account.note == [1, 2]
    assert "cannot be written" in why(state, "a.owner = 'Eve'", lend(account))
    assert "cannot be written" in why(state, "a.__class__ = 1", lend(account))
    assert account.owner == "Ada"


def test_a_method_needs_its_object(state: State, account: Account) -> None:
    assert "object:deposit(…)" in why(state, "a.deposit(1)", lend(account))
    other = Lent(Account(), ["owner"])
    assert "with a colon" in state.eval(
        "local a, b = ... return select(2, pcall(a.deposit, b, 1))", lend(account), other
    )


def test_an_exception_shows_a_script_only_what_failed(state: State, account: Account) -> None:
    assert why(state, "a:fail()", lend(account)) == "fail failed"
    assert why(state, "return a.broken", lend(account)) == "broken failed"
    assert state.eval("local a = ... local _, e = pcall(a.fail, a) return e.traceback, e.message", lend(account)) == (
        None,
        "fail failed",
    )
    with pytest.raises(OSError, match="is locked"):
        state.eval("local a = ... a:fail()", lend(account))


def test_what_an_object_refers_to_is_not_lent_with_it(state: State, account: Account) -> None:
    account.peer = Account()
    assert why(state, "return a.peer", lend(account)) == "peer failed"


def test_a_luau_error_of_the_object_reaches_the_script(state: State) -> None:
    class Shop:
        def buy(self) -> None:
            raise pyluau.LuauError("sold out")

    assert why(state, "a:buy()", Lent(Shop(), ["buy"])) == "sold out"


def test_python_receives_the_object_itself_back(state: State, account: Account) -> None:
    seen: list[Any] = []
    state.register("take", seen.append)
    assert state.eval("local a = ... take(a) take({a}) return a", lend(account)) is account
    assert seen == [account, [account]]


def test_the_same_object_is_equal_however_often_it_is_lent(state: State, account: Account) -> None:
    assert state.eval("local a, b, c = ... return a == b, a == c", lend(account), lend(account), lend(Account())) == (
        True,
        False,
    )


def test_async_methods_are_awaited(state: State, account: Account) -> None:
    assert asyncio.run(state.eval_async("local a = ... return a:confirm()", lend(account))) == "confirmed"


def test_an_object_is_freed_with_its_state() -> None:
    account = Account()
    reference = weakref.ref(account)
    with State() as state:
        state.define("account", lend(account))
        del account
        assert reference() is not None
    gc.collect()
    assert reference() is None


def test_tracebacks_of_host_functions_are_for_trusted_scripts(state: State) -> None:
    def fail() -> None:
        raise ValueError("no")

    source = "local _, e = pcall(fail) return e.message, e.traceback"
    state.register("fail", fail)
    assert state.eval(source) == ("ValueError: no", None)
    with State(sandbox=False) as trusted:
        trusted.register("fail", fail)
        message, trace = trusted.eval(source)
    assert message == "ValueError: no"
    assert "in fail" in trace
