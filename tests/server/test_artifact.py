"""What a run made is a file to save, never a page of ours."""

from __future__ import annotations

import pytest

from onward.server.artifact import SANDBOX, artifact_reply
from onward.server.problems import Problem

MADE = {"id": "../report<1>.html", "hash": "abc", "content": "0123456789"}


@pytest.mark.parametrize(
    ("wanted", "status", "body"),
    [
        (None, 200, b"0123456789"),
        ("bytes=2-4", 206, b"234"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-", 200, b"0123456789"),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_an_artifact_is_sent_whole_or_in_one_range(wanted: str | None, status: int, body: bytes) -> None:
    reply = artifact_reply(MADE, wanted)  # type: ignore[arg-type]  # the fields that are read
    assert (reply.status_code, reply.body) == (status, body)
    assert reply.headers["content-disposition"] == 'attachment; filename="report_1_.html"'
    assert reply.headers["content-security-policy"] == SANDBOX
    assert reply.headers["etag"] == '"abc"'


def test_a_range_that_is_not_there_is_refused() -> None:
    with pytest.raises(Problem) as refused:
        artifact_reply(MADE, "bytes=10-12")  # type: ignore[arg-type]  # the fields that are read
    assert refused.value.status == 416
