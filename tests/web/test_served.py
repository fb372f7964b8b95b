"""How the built page is served: below a path of its own, and compressed as it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.server.pages import codings, rooted

INDEX = Path(__file__).parent.parent.parent / "web/index.html"


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip, deflate, br, zstd", ["br", "gzip", ""]),
        ("gzip;q=1.0, br;q=0.5", ["br", "gzip", ""]),
        ("br;q=0, gzip", ["gzip", ""]),
        ("identity", [""]),
        ("", [""]),
    ],
)
def test_the_smallest_copy_that_a_client_takes_is_sent(accepted: str, chosen: list[str]) -> None:
    assert [coding for coding, _ in codings(accepted)] == chosen


def test_behind_a_proxy_every_address_of_the_page_gets_its_path() -> None:
    page = rooted(INDEX.read_text(), "/onward")
    assert '<meta name="onward-base" content="/onward/">' in page
    assert 'href="/onward/favicon.svg"' in page
    assert 'src="/onward/' in page
    assert 'content="width=device-width' in page


def test_at_the_root_the_page_is_as_it_was_built() -> None:
    assert rooted(INDEX.read_text(), "") == INDEX.read_text()
