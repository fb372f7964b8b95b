"""Every store hears the same sentences; `connect` in conftest.py says which stores."""

from __future__ import annotations

from onward.testing.conformance import *  # noqa: F403 - the sentences
