"""What a browser gets without a credential: the page's shell and its files, and nothing else."""

from __future__ import annotations

import pytest

from tests.server.door import a_door


@pytest.mark.parametrize(
    "path", ["/", "/sign-in", "/runs", "/runs/x", "/chats/a", "/gates", "/limits", "/workers"]
)
async def test_the_shell_is_open_and_holds_no_data(path: str) -> None:
    async with a_door() as door:
        reply = await door.get(path, role=None, headers={"accept": "text/html"})
    assert reply.status == 200
    assert reply.header("cache-control") == "no-store"
    assert "script-src 'self'" in (reply.header("content-security-policy") or "")


async def test_pipelines_are_the_page_for_browsers_alone() -> None:
    async with a_door() as door:
        assert (await door.get("/pipelines/x", role=None)).status == 401
        page = await door.get("/pipelines/x", role=None, headers={"accept": "text/html,*/*"})
        assert page.status == 200


@pytest.mark.parametrize(
    "name", ["..%2f..%2fpyproject.toml", "../pyproject.toml", "index.html%00", ".env", "a/b.js"]
)
async def test_a_file_of_the_page_is_named_by_its_name_alone(name: str) -> None:
    """S7."""
    async with a_door() as door:
        assert (await door.get(f"/assets/{name}", role=None)).status == 404


async def test_a_link_in_a_mail_may_lead_to_the_page_and_to_nothing_else() -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "accept": "text/html"}
    async with a_door() as door:
        assert (await door.get("/runs/x", role=None, headers=link)).status == 200
        assert (await door.get("/api/runs", headers=link)).code == "foreign_origin"
