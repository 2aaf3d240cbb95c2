"""Domains in permission rules: matched label by label, however an address is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.matching.hosts import DomainPattern, host_of


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("example.com", "example.com", True),
        ("Example.COM", "example.com", True),
        ("example.com.", "example.com", True),
        ("example.com", "sub.example.com", False),
        ("example.com", "badexample.com", False),
        ("example.com", "example.com.evil.org", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("*.local", "evillocal", False),
        ("api.*.example.com", "api.eu.example.com", True),
        ("api.*.example.com", "api.a.b.example.com", False),
        ("example.*", "example.org", True),
        ("example.*", "example.co.uk", False),
        ("docs-*.example.com", "docs-2.example.com", True),
        ("docs-*.example.com", "docs-2.x.example.com", False),
        ("*", "anything.example", True),
        ("b\u00fccher.example", "xn--bcher-kva.example", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("[::1]", "::1", True),
        ("::1", "::1", True),
    ],
)
def test_a_pattern_covers_hosts(pattern: str, host: str, expected: bool) -> None:
    assert DomainPattern(pattern).covers(host) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*.",
        "a..b",
        "https://example.com",
        "example.com/x",
        "example.com:80",
        "a b",
        "-a.com",
        "a_b\u200d.x",
        "zz::1",
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"expected a host such as example\.com"):
        DomainPattern(pattern)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.com/x", "example.com"),
        ("https://example.com.", "example.com"),
        ("https://example.com:8443/x?y#z", "example.com"),
        ("https://example.com?x=//other.org/", "example.com"),
        ("https://good.org@evil.example/", "evil.example"),
        ("https://good.org:pw@evil.example/", "evil.example"),
        ("https://evil.example#@good.org", "evil.example"),
        ("https://evil.example/@good.org", "evil.example"),
        ("https://\uff45xample.com/", "example.com"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("http://127.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f.0.0.1/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://[::1]:80/", "::1"),
        ("http://[0:0:0:0:0:0:0:1]/", "::1"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
    ],
)
def test_the_host_is_the_one_that_would_be_dialled(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "/x",
        "https:///x",
        "https://",
        "https://evil.example\\@good.org/",
        "https://a b/",
        "https://a\n.com/",
        "https://ex%61mple.com/",
        "https://*.example.com/",
        "https://[::1",
        "https://[zz]/",
        "https://1.2.3.4.5/",
        "https://stra\u00dfe.example/",
        "https://a..b/",
        "https://a:80:90/",
        "https://\u2028/",
        "https://[fe80::1%25eth0]@x]/",
        "https://" + "\u00fc" * 90 + ".com",
    ],
)
def test_a_url_that_can_be_read_in_two_ways_has_no_host(url: str) -> None:
    with pytest.raises(ValueError):
        host_of(url)


@given(st.text())
def test_any_text_has_a_host_or_is_refused(text: str) -> None:
    for url in (text, f"https://{text}/"):
        try:
            host = host_of(url)
        except ValueError:
            continue
        assert host.isascii()
        assert host == host.lower()
        assert "/" not in host
