"""What the sources of the page promise, without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

WEB = Path(__file__).parent.parent.parent / "web"
SOURCES = [*WEB.glob("src/**/*.ts"), *WEB.glob("src/**/*.tsx")]


def test_the_lock_names_no_registry_and_only_released_versions() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    for name, package in packages.items():
        assert "resolved" not in package, name
        assert package.get("integrity", "").startswith("sha512-"), name


def test_html_is_set_in_one_place_after_it_was_cleaned() -> None:
    """S5: the sanitiser is the only way to the document for what agents write."""
    ways = re.compile(r"innerHTML|dangerouslySet|insertAdjacentHTML|document\.write|outerHTML|\beval\(")
    found = {path.name for path in SOURCES if ways.search(path.read_text())}
    assert found <= {"Markdown.tsx"}


def test_nothing_is_fetched_from_elsewhere() -> None:
    addresses = re.compile(r"https?://(?!www\.w3\.org/)[a-z]")
    for path in [*SOURCES, WEB / "index.html", *WEB.glob("src/*.css"), *WEB.glob("public/*")]:
        assert not addresses.search(path.read_text()), path.name


def test_resuming_stands_beside_cancelling() -> None:
    """S4-24: the page's client has both, by the names that others use."""
    client = (WEB / "src/api/client.ts").read_text()
    assert re.search(r"export const resumeWorkflow = \(id: string", client)
    assert re.search(r"export const cancelWorkflow = \(id: string", client)
