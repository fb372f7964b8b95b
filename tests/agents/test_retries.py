"""What follows a failure, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.agents.model import (
    ASKED_S_MAX,
    BACKING_OFF,
    HANDLING,
    HOLDING,
    Failure,
    FailureKind,
    GiveUp,
    Retry,
    TryAgain,
    after_failure,
    pause_s,
)
from onward.agents.refusal import AskedModel, ProviderResponse, refusal, retry_at_us
from onward.testing.clock import NOVEMBER_2023_US as NOW

kinds = st.sampled_from(FailureKind)


def failure(kind: FailureKind, *, retry_at_us: int | None = None) -> Failure:
    return Failure(kind=kind, message="x", provider="acme", model="small", retry_at_us=retry_at_us)


def test_every_kind_is_in_the_table() -> None:
    assert set(HANDLING) == set(FailureKind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FailureKind.AUTH, "provider_auth"),
        (FailureKind.CREDIT, "provider_credit"),
        (FailureKind.FORBIDDEN, "provider_forbidden"),
        (FailureKind.REQUEST, "provider_request"),
        (FailureKind.TOO_LONG, "step_failed"),
    ],
)
def test_what_somebody_must_change_first_is_not_tried_again(kind: FailureKind, reason: str) -> None:
    asked_to = failure(kind, retry_at_us=NOW + 1)
    assert after_failure(asked_to, tries=1, now_us=NOW, roll=0.0) == GiveUp(reason)


@pytest.mark.parametrize("kind", [FailureKind.TRANSIENT, FailureKind.CUT, FailureKind.EMPTY])
def test_what_may_pass_is_tried_again_with_growing_pauses_a_few_times(kind: FailureKind) -> None:
    tries = range(1, BACKING_OFF.tries_max + 1)
    *again, last = [after_failure(failure(kind), tries=n, now_us=NOW, roll=0.0) for n in tries]
    assert again == [TryAgain(NOW + round(s * 1_000_000)) for s in (0.5, 1, 2, 4)]
    assert last == GiveUp("step_failed")


def test_a_rate_limit_waits_for_its_time_and_a_run_that_gives_up_says_so() -> None:
    asked_to = failure(FailureKind.RATE_LIMIT, retry_at_us=NOW + 3_600_000_000)
    assert after_failure(asked_to, tries=1, now_us=NOW, roll=0.0) == TryAgain(NOW + 3_600_000_000)
    spent = after_failure(asked_to, tries=HOLDING.tries_max, now_us=NOW, roll=0.0)
    assert spent == GiveUp("rate_limit")


def test_those_who_were_told_the_same_instant_come_back_at_different_ones() -> None:
    asked_to = failure(FailureKind.RATE_LIMIT, retry_at_us=NOW + 1_000_000)
    came = {after_failure(asked_to, tries=1, now_us=NOW, roll=roll / 10) for roll in range(10)}
    assert len(came) == 10


@given(kinds, st.integers(1, 100), st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 2**62))
def test_a_retry_is_never_in_the_past_and_never_more_than_a_day_away(
    kind: FailureKind, tries: int, roll: float, at_us: int | None
) -> None:
    match after_failure(failure(kind, retry_at_us=at_us), tries=tries, now_us=NOW, roll=roll):
        case TryAgain(at):
            assert HANDLING[kind].retry is not Retry.NEVER
            assert NOW <= at <= NOW + ASKED_S_MAX * 1_000_000
        case GiveUp(reason):
            assert reason == HANDLING[kind].reason


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_bounded(tries: int, roll: float) -> None:
    assert (
        BACKING_OFF.delay_s_first / 2
        <= pause_s(BACKING_OFF, tries=tries, roll=roll)
        <= BACKING_OFF.delay_s_max
    )


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60),
        ({"retry-after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0),
        ({"retry-after": "Tue, 14 Nov 2023 23:14:20 +0100"}, 60),
        ({"retry-after": "999999999"}, ASKED_S_MAX),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "9" * 5000}, None),
        ({}, None),
    ],
)
def test_the_time_to_come_back_is_read_from_seconds_and_dates(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_at_us(headers, NOW) == (None if wait_s is None else NOW + wait_s * 1_000_000)


@given(st.text())
def test_no_header_breaks_the_reading_of_it(text: str) -> None:
    found = retry_at_us({"retry-after": text, "retry-after-ms": text}, NOW)
    assert found is None or NOW <= found <= NOW + ASKED_S_MAX * 1_000_000


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, '{"error":{"type":"invalid_request_error"}}', FailureKind.AUTH),
        (404, '{"error":{"type":"invalid_request_error","code":"model_not_found"}}', FailureKind.REQUEST),
        (429, '{"error":{"type":"insufficient_quota"}}', FailureKind.CREDIT),
        (429, '{"error":{"message":"You exceeded your current quota"}}', FailureKind.CREDIT),
        (429, '{"error":{"code":"slow_down"}}', FailureKind.TRANSIENT),
        (429, "", FailureKind.RATE_LIMIT),
        (
            400,
            '{"error":{"message":"This model\'s maximum context length is 8192 tokens"}}',
            FailureKind.TOO_LONG,
        ),
        (400, '{"error":"prompt is too long"}', FailureKind.TOO_LONG),
        (400, '{"object":"error","message":"context window exceeded"}', FailureKind.TOO_LONG),
        (400, '[{"error":{"message":"bad"}}]', FailureKind.REQUEST),
        (413, "", FailureKind.TOO_LONG),
        (422, '{"detail":"bad field"}', FailureKind.REQUEST),
        (529, '{"error":{"type":"overloaded_error"}}', FailureKind.TRANSIENT),
        (500, '{"error":{"message":"the maximum context length was not found"}}', FailureKind.TRANSIENT),
        (599, "<html>", FailureKind.TRANSIENT),
        (204, "", FailureKind.REQUEST),
    ],
)
def test_the_words_of_a_refusal_say_more_than_its_status(status: int, body: str, kind: FailureKind) -> None:
    told = refusal(
        AskedModel("acme", "small"),
        ProviderResponse(status=status, headers={}, body=body.encode()),
        now_us=NOW,
    )
    assert told.kind is kind


@given(st.integers(100, 999), st.binary())
def test_every_response_is_some_failure_in_one_line(status: int, body: bytes) -> None:
    told = refusal(
        AskedModel("acme", "small"), ProviderResponse(status=status, headers={}, body=body), now_us=NOW
    )
    assert "\n" not in told.message
    assert told.message.endswith(".")
