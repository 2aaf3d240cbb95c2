"""JSON web tokens: which are accepted, whose key checks them, and how the keys are read."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.net.http_server import encode_response, never_respond, respond_with, serve
from vaka.core.types.errors import ConfigError, InvalidInput, Unavailable
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.server.auth.api_keys import KeyOptions
from vaka.server.auth.authenticator import open_authenticator
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.jwt import (
    KEYS_SECONDS,
    REFRESH_SECONDS,
    RETRY_SECONDS,
    JwtSettings,
    JwtVerifier,
    owner_prefix_of,
)
from vaka.server.kit.guard import Credentials
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock

ISSUER, AUDIENCE = "https://login.example/", "vaka"
KIM = f"{owner_prefix_of(ISSUER)}kim"
SECRET = "0123456789abcdef0123456789abcdef"  # not a secret


@cache
def private_key(kid: str) -> Any:
    kinds: dict[str, Any] = {
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "ed": ed25519.Ed25519PrivateKey.generate,
        "weak": lambda: rsa.generate_private_key(65537, 1024),  # must be refused
    }
    return kinds.get(kid, lambda: ec.generate_private_key(ec.SECP256R1()))()


def public_key(kid: str, **more: Any) -> dict[str, Any]:
    """Return a key as an entry of a key set."""
    algorithm: Any = {"rsa": RSAAlgorithm, "weak": RSAAlgorithm, "ed": OKPAlgorithm}.get(kid, ECAlgorithm)
    return {**algorithm.to_jwk(private_key(kid).public_key(), as_dict=True), "kid": kid, **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def sign(kid: str = "ec", algorithm: str = "ES256", *, headers: Any = None, key: Any = None, **claims: Any) -> str:
    """Return a token with good claims, changed by ``claims``; ``None`` removes one."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "kim", "exp": now + 60, "iat": now, "scope": "runs:read other"}
    body = {name: value for name, value in {**good, **claims}.items() if value is not None}
    return jwt.encode(body, key or private_key(kid), algorithm=algorithm, headers={"kid": kid} | (headers or {}))


def forge(header: Any, payload: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(public_key("ec"), public_key("rsa", use="sig"), public_key("ed", alg="EdDSA")))
    return path


@pytest.fixture
def settings(keys_file: Path) -> JwtSettings:
    return JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(keys_file))


@pytest.fixture
def verifier(settings: JwtSettings) -> JwtVerifier:
    return JwtVerifier(settings, FakeClock())


async def refusal_of(verifier: JwtVerifier, token: str) -> str:
    with pytest.raises(CredentialRefused) as refused:
        await verifier.verify(token)
    return str(refused.value)


# ------------------------------------------------------------------------------------------------------------- claims


async def test_a_token_names_its_caller_scopes_and_tenant(settings: JwtSettings, keys_file: Path) -> None:
    end = int(time.time()) + 60
    kim = Principal(id=KIM, scopes=frozenset({"runs:read"}), key=KIM, own_sessions_only=True, expires=end + 30.0)
    verifier = JwtVerifier(settings, FakeClock())
    signed = [("ec", "ES256"), ("rsa", "RS256"), ("rsa", "PS512"), ("ed", "EdDSA")]
    tokens = [*(sign(*how, exp=end) for how in signed), sign(aud=["other", AUDIENCE], exp=str(end))]
    assert [await verifier.verify(token) for token in tokens] == [kim] * 5
    of_tenants = JwtSettings(
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks=str(keys_file),
        tenant_claim="org",
        scope_claim="roles",
        own_sessions_only=False,
    )
    verifier = JwtVerifier(of_tenants, FakeClock())
    assert await verifier.verify(sign(org="acme", roles=["admin", "operator", "cook"], exp=end)) == Principal(
        id=KIM, namespace="acme", scopes=frozenset({"admin"}), key=KIM, expires=end + 30.0
    )
    assert (await verifier.verify(sign(org="acme"))).scopes == frozenset()
    assert "the token has no claim 'org'" in await refusal_of(verifier, sign())
    assert "the claim 'org' is not a text of 1 to 255" in await refusal_of(verifier, sign(org=5))
    for roles in (5, [1], {"admin": True}):
        assert "the claim 'roles' is neither" in await refusal_of(verifier, sign(org="acme", roles=roles))


async def test_a_token_names_an_operator_only_where_the_settings_say_so(settings: JwtSettings) -> None:
    token = sign(scope="runs:read operator debug admin")
    for allowed in (False, True):
        verifier = JwtVerifier(msgspec.structs.replace(settings, allow_operator=allowed), FakeClock())
        principal = await verifier.verify(token)
        assert (principal.may("operator"), principal.may("debug")) == (allowed, allowed)


@pytest.mark.parametrize("tenant", ["../x", "..", ".", "a/b", "/etc", "-x", "a b", "a\\b", "ä", "x" * 129])
async def test_a_name_that_no_tenant_can_have_is_refused(settings: JwtSettings, tenant: str) -> None:
    verifier = JwtVerifier(msgspec.structs.replace(settings, tenant_claim="org"), FakeClock())
    assert "is not the name of a tenant" in await refusal_of(verifier, sign(org=tenant))
    keys = (await open_authenticator(MemoryStore().values, {}, FakeClock())).keys
    with pytest.raises(InvalidInput, match="is not the name of a tenant"):
        await keys.create(KeyOptions(namespace=tenant))
    for good in ("acme", "org_1a2B", "auth0|5f7c", "team@example.com", "x" * 128):
        assert (await verifier.verify(sign(org=good))).namespace == good
        assert (await keys.create(KeyOptions(namespace=good)))[0].namespace == good


async def test_a_subject_is_the_owner_of_no_key_and_of_no_other_issuer(settings: JwtSettings) -> None:
    store = MemoryStore()
    authenticator = await open_authenticator(store.values, {}, FakeClock(), jwt=settings)
    key, text = await authenticator.keys.create(KeyOptions(owner="kim"))
    owners = {f"ak_{key.id}", "kim", "local"}
    for subject in owners:
        token = sign(sub=subject)
        assert (await authenticator.authenticate(Credentials(kind="bearer", token=token))).id not in owners
    with pytest.raises(InvalidInput, match="cannot begin with 'jwt:'"):
        await authenticator.keys.create(KeyOptions(owner=KIM))
    assert (await authenticator.authenticate(Credentials(kind="bearer", token=text))).id == "kim"
    assert owner_prefix_of(ISSUER) != owner_prefix_of(f"{ISSUER}other/")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": -31}, "Signature has expired"),
        ({"exp": None}, 'missing the "exp" claim'),
        ({"exp": "soon"}, "Expiration Time claim"),
        ({"exp": float("nan")}, ""),
        ({"exp": float("inf")}, ""),
        ({"exp": 10**400}, "too large"),
        ({"nbf": 45}, "not yet valid"),
        ({"iat": 45}, "not yet valid"),
        ({"iss": "https://evil.example/"}, "Invalid issuer"),
        ({"iss": None}, 'missing the "iss" claim'),
        ({"aud": "other"}, "Audience doesn't match"),
        ({"aud": None}, 'missing the "aud" claim'),
        ({"sub": None}, 'missing the "sub" claim'),
        ({"sub": ""}, "the claim 'sub' is not a text"),
        ({"sub": "a\nb"}, "the claim 'sub' is not a text"),
        ({"sub": "x" * 256}, "the claim 'sub' is not a text"),
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused(
    verifier: JwtVerifier, claims: dict[str, Any], message: str
) -> None:
    now = int(time.time())
    shifted: dict[str, Any] = {
        name: now + value if name in ("exp", "nbf", "iat") and isinstance(value, int) else value
        for name, value in claims.items()
    }
    assert message in await refusal_of(verifier, sign(**shifted))


async def test_clocks_may_differ_by_less_than_half_a_minute(verifier: JwtVerifier) -> None:
    now = int(time.time())
    assert (await verifier.verify(sign(exp=now - 10, nbf=now + 10, iat=now + 10))).id == KIM


# ------------------------------------------------------------------------------------------------- algorithms and keys


async def test_an_algorithm_that_is_not_allowed_is_refused_whatever_its_signature(
    verifier: JwtVerifier, keys_file: Path
) -> None:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "kim", "exp": now + 60}
    public = private_key("rsa").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = forge({"alg": "HS256", "kid": "rsa"}, claims)
    tokens = [
        confused,
        forge({"alg": "none"}, claims),
        forge({"alg": "None", "kid": "ec"}, claims),
        forge({}, claims),
        forge({"alg": None}, claims),
        forge({"alg": ["ES256"]}, claims),
        forge({"alg": {"a": 1}}, claims),
    ]
    expected = "the token is signed with an algorithm that this server does not accept"
    assert [await refusal_of(verifier, token) for token in tokens] == [expected] * len(tokens)
    with_secret = JwtSettings(
        issuer=ISSUER, audience=AUDIENCE, jwks=str(keys_file), algorithms=("RS256", "HS256"), secret=SECRET
    )
    both = JwtVerifier(with_secret, FakeClock())
    assert (await both.verify(sign("rsa", "RS256"))).id == (await both.verify(sign(algorithm="HS256", key=SECRET))).id
    jws = jwt.PyJWS()
    signed = jws.get_algorithm_by_name("HS256").sign(confused.rpartition(".")[0].encode(), public)
    for token in (confused.rpartition(".")[0] + "." + base64.urlsafe_b64encode(signed).rstrip(b"=").decode(), confused):
        assert await refusal_of(both, token) == "the token is not valid: Signature verification failed"
    assert "an algorithm that this server does not accept" in await refusal_of(both, sign())


async def test_a_forged_changed_or_malformed_token_is_refused(verifier: JwtVerifier) -> None:
    token = sign()
    head, body, signature = token.split(".")
    other = sign("other", headers={"kid": "ec"})
    tokens = [
        other,
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body[:-2]}.{signature}",
        f"{token}.{signature}",
        "",
        "..",
        "a.b.c",
        "x" * 5000,
        f" {token}",
        f"{token}\n",
        forge([], {}),
        forge({"alg": "ES256", "kid": 7}, {}),
        forge({"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, {}),
        "ü.ü.ü",
        "\ud800",
        forge(0, 0),
        base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.e30",
    ]
    for wrong in tokens:
        assert (await refusal_of(verifier, wrong)).startswith("the token is not valid: ")


async def test_only_a_public_key_that_fits_the_algorithm_checks_a_token(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "shared"}
    path.write_bytes(
        key_set(
            secret,
            public_key("enc", use="enc"),
            public_key("fixed", alg="ES384"),
            public_key("one"),
            {**public_key("twin"), "kid": "same"},
            {**public_key("other"), "kid": "same"},
            public_key("weak"),
            {"kty": "new"},
            {"kty": "EC", "crv": "P-256", "kid": "cut"},
        )
    )
    verifier = JwtVerifier(JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(path)), FakeClock())
    assert (await verifier.verify(sign("one"))).id == KIM
    for kid in ("enc", "fixed", "unknown"):
        refusal = await refusal_of(verifier, sign(kid))
        assert refusal == "the issuer of the token has no key for its algorithm and key id"
    assert "has several keys for" in await refusal_of(verifier, sign("twin", headers={"kid": "same"}))
    assert "Not an Elliptic curve key" in await refusal_of(verifier, sign("cut"))
    assert "below the minimum" in await refusal_of(verifier, sign_weakly())


def sign_weakly() -> str:
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        return sign("weak", "RS256")


async def test_a_token_without_a_key_id_needs_an_issuer_with_one_key(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(public_key("ec")))
    settings = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(path))
    claims = jwt.decode(sign(), options={"verify_signature": False})
    token = jwt.encode(claims, private_key("ec"), algorithm="ES256")
    assert (await JwtVerifier(settings, FakeClock()).verify(token)).id == KIM
    path.write_bytes(key_set(public_key("ec"), public_key("other")))
    assert "has several keys for" in await refusal_of(JwtVerifier(settings, FakeClock()), token)


# -------------------------------------------------------------------------------------------------- where keys are read


async def test_a_new_key_is_found_at_a_bounded_rate_and_the_set_is_read_again_after_a_while(tmp_path: Path) -> None:
    answers = [encode_response(key_set(public_key("ec"))), encode_response(key_set(public_key("new")))]
    clock = FakeClock()
    async with serve(respond_with(*answers)) as server, trusting(server.authority) as network:
        settings = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=server.url("/jwks.json"))
        verifier = JwtVerifier(settings, clock, network)
        await asyncio.gather(*(verifier.verify(sign()) for _ in range(5)))
        for number in range(50):
            assert "has no key for" in await refusal_of(verifier, sign(f"fake{number % 3}"))
        assert len(server.requests) == 1
        clock.advance(REFRESH_SECONDS)
        assert (await verifier.verify(sign("new"))).id == KIM
        assert "has no key for" in await refusal_of(verifier, sign())
        assert len(server.requests) == 2
        clock.advance(KEYS_SECONDS)
        assert (await verifier.verify(sign("new"))).id == KIM
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        encode_response(b"no", "500 Failed"),
        encode_response(b"<html>"),
        encode_response(b'{"keys": 5}'),
        encode_response(b"x" * 300_000),
        encode_response(b"", "302 Found", [("Location", "https://evil.example/")]),
    ],
    ids=["error", "page", "not a list", "too large", "redirect"],
)
async def test_keys_stay_in_use_while_the_set_cannot_be_read(answer: bytes) -> None:
    clock = FakeClock()
    answers = respond_with(answer, encode_response(key_set(public_key("ec"))), answer)
    async with serve(answers) as server, trusting(server.authority) as network:
        settings = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=server.url("/jwks.json"))
        verifier = JwtVerifier(settings, clock, network)
        for _ in range(3):
            with pytest.raises(Unavailable, match="the keys of the token's issuer cannot be read now"):
                await verifier.verify(sign())
        assert len(server.requests) == 1
        clock.advance(RETRY_SECONDS)  # sooner than with keys: no token is accepted until then
        assert (await verifier.verify(sign())).id == KIM
        clock.advance(KEYS_SECONDS)
        assert (await verifier.verify(sign())).id == KIM
        assert len(server.requests) == 3


async def test_a_key_set_at_an_address_that_is_not_public_needs_permission(tmp_path: Path) -> None:
    async with serve(never_respond) as server, Connector() as network:
        settings = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=server.url("/jwks.json"))
        with pytest.raises(Unavailable):
            await JwtVerifier(settings, FakeClock(), network).verify(sign())
        assert server.requests == []
    with pytest.raises(ConfigError, match="this server has no network"):
        JwtVerifier(settings, FakeClock())
    missing = JwtSettings(issuer=ISSUER, audience=AUDIENCE, jwks=str(tmp_path / "missing.json"))
    with pytest.raises(Unavailable):
        await JwtVerifier(missing, FakeClock()).verify(sign())


def trusting(authority: str) -> Connector:
    return Connector(NetworkRules(trusted=(authority,)))


# ----------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"issuer": ""}, "need an issuer and an audience"),
        ({"jwks": ""}, "need a key set"),
        ({"jwks": "http://login.example/jwks"}, "is not safe over http; expected https"),
        ({"algorithms": ("HS256",)}, "HS256 needs a secret"),
        ({"secret": SECRET}, "a secret needs HS256, HS384 or HS512"),
        ({"secret": "short", "algorithms": ("HS256",)}, "too short: its algorithm needs 32 bytes"),
        ({"secret": SECRET, "algorithms": ("HS512",)}, "too short: its algorithm needs 64 bytes"),
    ],
)
def test_settings_that_are_not_safe_or_not_complete_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JwtSettings(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks": "jwks.json", **changes})


async def test_a_shared_secret_alone_accepts_hs256(clock: FakeClock) -> None:
    verifier = JwtVerifier(JwtSettings(issuer=ISSUER, audience=AUDIENCE, secret=SECRET), clock)
    assert (await verifier.verify(sign(algorithm="HS256", key=SECRET))).id == KIM
    assert "does not accept" in await refusal_of(verifier, sign())


async def test_a_server_accepts_keys_and_tokens_side_by_side(
    store: MemoryStore, clock: FakeClock, settings: JwtSettings
) -> None:
    authenticator = await open_authenticator(store.values, {}, clock, jwt=settings)
    principal = await authenticator.authenticate(Credentials(kind="bearer", token=sign()))
    assert (principal.id, await authenticator.is_valid(principal)) == (KIM, True)
    clock.jump(time.time() + 60 - clock.time())
    assert await authenticator.is_valid(principal)
    clock.advance(31)
    assert not await authenticator.is_valid(principal)
    for token in (f"ak_{sign()}", sign("unknown")):
        with pytest.raises(Problem) as refused:
            await authenticator.authenticate(Credentials(kind="bearer", token=token))
        assert refused.value.status == 401


@pytest.fixture(autouse=True, scope="module")
def forget_keys() -> Iterator[None]:
    yield
    private_key.cache_clear()
