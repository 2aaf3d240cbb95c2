"""Answers and verdicts of the network, as values."""

from vaka.core.ports.net import NetHead, NetVerdict


def test_a_header_is_found_whatever_the_case_of_its_name() -> None:
    head = NetHead(status=200, headers=(("content-type", "text/plain"), ("set-cookie", "a=1"), ("set-cookie", "b=2")))
    assert head.header("Content-TYPE") == "text/plain"
    assert head.header("Set-Cookie") == "a=1, b=2"
    assert head.header_values("Set-Cookie") == ("a=1", "b=2")
    assert (head.header("Missing"), head.header("Missing", "none"), head.header_values("Missing")) == ("", "none", ())


def test_a_verdict_allows_unless_it_has_a_reason() -> None:
    assert NetVerdict(url="https://example.com/").allowed
    assert not NetVerdict(reason="scheme", message="no").allowed
