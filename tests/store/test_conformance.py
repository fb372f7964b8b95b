"""Every store hears the same sentences; `connect` in conftest.py says which stores."""

from __future__ import annotations

from tests.conformance.suite import *  # noqa: F403 - the sentences
