"""Rules: which hosts may be reached besides, or instead of, the public internet."""

from ipaddress import ip_address

import msgspec
import pytest

from vaka.core.types.errors import ConfigError
from vaka.net.connector import Connector
from vaka.net.rules import AddressKind, NetworkRules, kind_of


def refusal_reason(rules: NetworkRules, url: str) -> str:
    return Connector(rules).decide(url).reason


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("example.com", ("example.com", "EXAMPLE.com."), ("www.example.com", "badexample.com", "example.com.evil.net")),
        ("*.example.com", ("www.example.com", "a.b.example.com"), ("example.com", "badexample.com")),
        (".example.com", ("example.com", "a.b.example.com"), ("badexample.com", "example.com.evil.net")),
        ("EXAMPLE.com.", ("example.com",), ("example.org",)),
        ("bücher.example", ("xn--bcher-kva.example", "BÜCHER.example"), ("bucher.example",)),
        ("*.bücher.example", ("a.bücher.example",), ("bücher.example",)),
        ("example.com:8080", ("example.com:8080",), ("example.com", "example.com:8081")),
        ("*:8080", ("example.com:8080", "8.8.8.8:8080"), ("example.com",)),
        ("*", ("example.com", "8.8.8.8"), ()),
        ("8.8.8.8", ("8.8.8.8", "[::ffff:8.8.8.8]"), ("8.8.4.4", "8.8.8.8.example")),
        ("8.8.0.0/16", ("8.8.4.4", "8.8.8.8:8080"), ("8.9.0.1", "example.com")),
        ("8.8.0.0/16:8080", ("8.8.8.8:8080",), ("8.8.8.8",)),
        ("2606:4700::/32", ("[2606:4700::1]",), ("[2606:4701::1]",)),
        ("[2606:4700::1]:8080", ("[2606:4700::1]:8080",), ("[2606:4700::1]",)),
    ],
)
def test_a_pattern_matches_hosts(pattern: str, meant: tuple[str, ...], not_meant: tuple[str, ...]) -> None:
    for host in meant:
        assert refusal_reason(NetworkRules(allow_hosts=(pattern,)), f"http://{host}/") == ""
        assert refusal_reason(NetworkRules(deny_hosts=(pattern,)), f"http://{host}/") == "denied"
    for host in not_meant:
        assert refusal_reason(NetworkRules(allow_hosts=(pattern,)), f"http://{host}/") == "not_allowed"
        assert refusal_reason(NetworkRules(deny_hosts=(pattern,)), f"http://{host}/") == ""


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "http://example.com", "exa mple", "a..b", "*x.example", "a.*.b", "example.com:0", "example.com:99999"),
        *("example.com:x", "10.0.0.1/8", "300.1.1.1", "127.1", "user@host", "[::1", "::1:zz"),
    ],
)
def test_an_invalid_pattern_is_an_error_at_once(pattern: str) -> None:
    with pytest.raises(ConfigError):
        NetworkRules(deny_hosts=(pattern,))


def test_deny_takes_precedence_over_allow_and_trust() -> None:
    rules = NetworkRules(allow_hosts=("example.com",), trusted=("example.com",), deny_hosts=(".com",))
    assert refusal_reason(rules, "https://example.com/") == "denied"


def test_an_address_is_denied_also_inside_nat64() -> None:
    rules = NetworkRules(deny_hosts=("8.8.8.8",))
    assert refusal_reason(rules, "http://[64:ff9b::808:808]/") == "denied"
    assert refusal_reason(rules, "http://[64:ff9b::808:404]/") == ""


def test_a_trusted_host_need_not_be_public_but_only_on_its_port() -> None:
    rules = NetworkRules(trusted=("127.0.0.1:8080", "localhost:3000", "10.1.0.0/16", "[::1]:22"))
    assert [
        refusal_reason(rules, f"http://{host}/")
        for host in ("127.0.0.1:8080", "localhost:3000", "10.1.2.3", "[::1]:22", "127.0.0.1", "localhost", "10.2.0.1")
    ] == ["", "", "", "", "loopback", "loopback", "private"]


def test_allowing_hosts_excludes_others_and_trusting_hosts_does_not() -> None:
    assert refusal_reason(NetworkRules(trusted=("localhost:3000",)), "https://example.com/") == ""
    rules = NetworkRules(trusted=("localhost:3000",), allow_hosts=("example.com",))
    assert refusal_reason(rules, "http://localhost:3000/") == ""
    assert refusal_reason(rules, "https://example.org/") == "not_allowed"


def test_loopback_and_private_networks_are_allowed_separately() -> None:
    hosts = ("127.0.0.1", "localhost", "10.0.0.1", "a.internal", "100.64.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1")
    opened = [
        [refusal_reason(rules, f"http://{host}/") for host in hosts]
        for rules in (NetworkRules(allow_loopback=True), NetworkRules(allow_private=True))
    ]
    assert opened == [
        ["", "", "private", "private", "cgnat", "link_local", "unspecified", "multicast"],
        ["loopback", "loopback", "", "", "cgnat", "link_local", "unspecified", "multicast"],
    ]


def test_a_metadata_service_is_trusted_only_by_its_own_name() -> None:
    metadata = "http://169.254.169.254/"
    wide = NetworkRules(trusted=("169.254.0.0/16", "*", "fd00::/8"), allow_private=True)
    assert refusal_reason(wide, metadata) == "metadata"
    assert refusal_reason(wide, "http://[fd00:ec2::254]/") == "metadata"
    assert refusal_reason(wide, "http://metadata.google.internal/") == "metadata"
    assert refusal_reason(NetworkRules(trusted=("169.254.169.254",)), metadata) == ""
    assert refusal_reason(NetworkRules(trusted=("metadata.google.internal",)), "http://metadata.google.internal/") == ""


def test_only_listed_ports_are_allowed() -> None:
    rules = NetworkRules(ports=(443, 6379))
    assert [refusal_reason(rules, f"http://example.com:{port}/") for port in (80, 443, 6379, 8080)] == [
        "port",
        "",
        "",
        "port",
    ]
    with pytest.raises(ConfigError, match="70000"):
        NetworkRules(ports=(70000,))


def test_rules_are_plain_data_and_a_typo_is_an_error() -> None:
    rules = msgspec.convert({"allow_hosts": ["example.com"], "allow_loopback": True}, NetworkRules)
    assert rules == NetworkRules(allow_hosts=("example.com",), allow_loopback=True)
    with pytest.raises(msgspec.ValidationError, match="allow_host"):
        msgspec.convert({"allow_host": ["example.com"]}, NetworkRules)


KINDS: dict[AddressKind, tuple[str, ...]] = {
    "public": (
        *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0"),
        *("192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.0"),
        *("2606:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "2001:200::1"),
        *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
    ),
    "loopback": (
        *("127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1"),
        *("2002:7f00:1::", "2606:4700::5efe:127.0.0.1"),
    ),
    "private": (
        *("10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fdff:ffff::1"),
        *("::ffff:10.0.0.1", "::ffff:c0a8:1", "64:ff9b::c0a8:1", "2002:a00:1::", "::10.0.0.1"),
        *("2606:4700::200:5efe:10.0.0.1",),
    ),
    "cgnat": ("100.64.0.0", "100.127.255.255", "::ffff:100.64.0.1", "64:ff9b::6440:1"),
    "link_local": ("169.254.0.1", "169.254.255.255", "fe80::1", "febf::1", "64:ff9b::a9fe:1"),
    "metadata": (
        *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
        *("fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::169.254.169.254"),
    ),
    "multicast": ("224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1", "::ffff:224.0.0.1"),
    "unspecified": ("0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"),
    "reserved": (
        *("192.0.0.1", "192.0.2.1", "198.51.100.7", "203.0.113.9", "198.18.0.1", "198.19.255.255", "192.88.99.1"),
        *("240.0.0.1", "255.255.255.255", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2001:10::1", "2001:2::1"),
        *("3fff::1", "3ffe::1", "fec0::1", "100::1", "64:ff9b:1::1", "5f00::1", "4000::1", "::8.8.8.8", "200::1"),
    ),
}


def test_every_address_has_its_kind() -> None:
    found = {address: kind_of(ip_address(address)) for addresses in KINDS.values() for address in addresses}
    expected = {address: kind for kind, addresses in KINDS.items() for address in addresses}
    assert {address: kind for address, kind in found.items() if kind != expected[address]} == {}
