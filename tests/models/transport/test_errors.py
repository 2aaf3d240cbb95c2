"""Error responses of providers as our errors: the type, the message and the advice, without secrets."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from vaka.models.transport import errors

OPENAI = {"error": {"message": "No such model.", "type": "invalid_request_error", "param": "model", "code": "x"}}
ANTHROPIC = {"type": "error", "error": {"type": "invalid_request_error", "message": "No such model."}}
GEMINI = [{"error": {"code": 400, "message": "No such model.", "status": "INVALID_ARGUMENT"}}]
PLAIN = {"detail": "No such model."}
FLAT = {"message": "No such model.", "code": 400}


def error_for(status: int, body: object, **headers: str) -> ModelError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return errors.error_from_response(status, named, msgspec.json.encode(body), lambda: 1_000_000_000.0)


@pytest.mark.parametrize("body", [OPENAI, ANTHROPIC, GEMINI, PLAIN, FLAT, {"error": "No such model."}])
def test_a_bad_request_has_the_message_of_the_provider_in_every_format(body: object) -> None:
    error = error_for(400, body)
    assert type(error) is BadRequest
    assert "No such model." in str(error)
    assert "HTTP 400" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationFailed),
        (403, AuthenticationFailed),
        (404, BadRequest),
        (408, ModelUnavailable),
        (409, ModelUnavailable),
        (413, BadRequest),
        (422, BadRequest),
        (425, ModelUnavailable),
        (429, RateLimited),
        (500, ModelUnavailable),
        (502, ModelUnavailable),
        (503, ModelUnavailable),
        (529, ModelUnavailable),
        (302, ModelRefused),
        (307, ModelRefused),
    ],
)
def test_the_error_message_has_a_hint_for_each_status(status: int, kind: type[ModelError]) -> None:
    error = error_for(status, {"error": {"message": "so it is"}})
    assert type(error) is kind
    assert getattr(error, "status", None) == status


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "The maximum context length is 8192 tokens.", "code": "context_length_exceeded"}},
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}},
        {"error": {"code": 400, "message": "The input token count (9) exceeds the maximum (8).", "status": "X"}},
        {"error": {"code": 400, "message": "the request exceeds the available context size", "type": "y"}},
    ],
)
def test_a_conversation_that_is_too_long_is_context_too_long(body: object) -> None:
    error = error_for(400, body)
    assert type(error) is ContextTooLong
    assert "compact" in str(error)


@pytest.mark.parametrize("status", [500, 503])
def test_an_error_of_the_server_is_retried_whatever_its_message_says(status: int) -> None:
    body = {"error": {"message": "The maximum context length is 8192 tokens.", "code": "context_length_exceeded"}}
    assert type(error_for(status, body)) is ModelUnavailable
    assert type(error_for(499, body)) is ContextTooLong


def test_an_account_without_credit_is_not_retried() -> None:
    body = {
        "error": {"message": "You exceeded your quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    }
    error = error_for(429, body, retry_after="1")
    assert type(error) is ModelRefused
    assert "credit" in str(error)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (402, {"error": {"message": "Payment Required", "type": "unknown_error", "code": "invalid_request_error"}}),
        (402, {"error": {"code": 402, "message": "This request requires more of it."}}),
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "Your credit balance is too low to access the API.",
                },
            },
        ),
    ],
)
def test_an_account_without_credit_is_recognized_in_every_form(status: int, body: object) -> None:
    error = error_for(status, body)
    assert type(error) is ModelRefused
    assert "the account has no credit left: add some, or use another key" in str(error)


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (404, "check the name of the model, and the base URL if you set one"),
        (405, "check the base URL"),
        (413, "send less: attach less, or compact the session"),
    ],
)
def test_errors_for_a_page_and_a_too_large_request_have_advice(status: int, hint: str) -> None:
    error = errors.error_from_response(status, {}, b"<html>no</html>")
    assert type(error) is BadRequest
    assert str(error).endswith(f"(HTTP {status}) ({hint})")


def test_an_invalid_key_with_status_400_is_recognized() -> None:
    details = [7, {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}, {"reason": 1}]
    body = {"error": {"code": 400, "message": "Not valid.", "status": "INVALID_ARGUMENT", "details": details}}
    assert type(error_for(400, body)) is AuthenticationFailed


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "Sun, 09 Sep 2001 01:47:00 GMT"}, 20.0),
        ({"retry_after": "Sun, 09 Sep 2001 01:00:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "999999999"}, errors.MAX_RETRY_AFTER),
        ({"retry_after": "9" * 400}, None),
        ({}, None),
    ],
)
def test_the_retry_delay_is_taken_from_valid_headers(headers: dict[str, str], seconds: float | None) -> None:
    error = error_for(429, {"error": {"message": "slow down"}}, **headers)
    assert isinstance(error, RateLimited)
    assert error.retry_after == seconds


def test_the_retry_delay_may_be_in_the_body() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [1, detail]}}
    error = error_for(429, body)
    assert isinstance(error, RateLimited)
    assert error.retry_after == 34.0


@pytest.mark.parametrize(
    ("asked", "retry_hint"),
    [
        ("7", " (try again in 7 s)"),
        ("7.2", " (try again in 8 s)"),
        ("3601", " (try again in 61 minutes)"),
        ("0.2", ""),
        ("soon", ""),
    ],
)
@pytest.mark.parametrize("status", [429, 529])
def test_the_retry_delay_is_in_the_message(asked: str, retry_hint: str, status: int) -> None:
    error = error_for(status, {"error": {"message": "Slow down."}}, retry_after=asked)
    assert str(error) == f"Slow down. (HTTP {status}){retry_hint}"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelUnavailable),
        ({"error": {"message": "The server had an error", "type": "server_error"}}, ModelUnavailable),
        ({"error": {"message": "slow down", "type": "rate_limit_error"}}, RateLimited),
        ({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, ModelUnavailable),
        ({"type": "error", "error": {"type": "authentication_error", "message": "bad key"}}, AuthenticationFailed),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, BadRequest),
        ({"error": {"message": "no idea"}}, ModelUnavailable),
    ],
)
def test_an_error_event_is_mapped_by_its_kind(event: object, kind: type[ModelError]) -> None:
    assert type(errors.error_from_event(event)) is kind


def test_a_page_instead_of_an_answer_is_described() -> None:
    error = errors.error_from_response(502, {}, b"<html><body>Bad gateway</body></html>")
    assert isinstance(error, ModelUnavailable)
    assert "an HTML page" in str(error)


def test_keys_that_a_provider_repeats_are_not_shown_but_names_of_models_are() -> None:
    said = "Incorrect API key provided: sk-proj-abcdef0123456789. For claude-3-5-sonnet-20241022, see docs."
    error = error_for(401, {"error": {"message": said}})
    assert "abcdef" not in str(error)
    assert "claude-3-5-sonnet-20241022" in str(error)


def test_a_long_message_is_cut() -> None:
    assert len(str(error_for(400, {"error": {"message": "a " * 100_000}}))) < 2000


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "errors", "detail", "details", "message", "type", "code", "status", "retryDelay"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(status=st.integers(300, 599), body=_JSON)
def test_any_body_with_any_status_is_an_error_of_the_tree(status: int, body: object) -> None:
    error = error_for(status, body)
    assert isinstance(error, ModelError)
    assert str(error)


@given(status=st.integers(300, 599), body=st.binary(max_size=300))
def test_a_body_of_any_bytes_is_an_error_of_the_tree(status: int, body: bytes) -> None:
    assert isinstance(errors.error_from_response(status, {}, body), ModelError)
