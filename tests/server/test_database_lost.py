"""A server whose database is taken away under it."""

from __future__ import annotations

import os

import pytest

from tests.cli.shell import Shell
from tests.server.serving import serving

pytestmark = pytest.mark.slow


def test_a_server_whose_file_was_replaced_ends_and_says_so(shell: Shell) -> None:
    """What it still wrote would be seen by nobody: it must not go on."""
    with serving(shell) as server:
        place = shell.directory / shell.db
        os.replace(place, f"{place}.old")
        place.write_bytes(b"")
        done = server.process.end()
    assert done.code == 1, done
    assert str(place.name) in done.out + done.err
