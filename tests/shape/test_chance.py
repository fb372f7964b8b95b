"""Where chance comes in: `make test` has none of it, `make explore` has all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.chance import EXPLORING, SAME


def test_only_exploring_draws_new_examples() -> None:
    assert settings.get_profile(SAME).derandomize
    assert not settings.get_profile(EXPLORING).derandomize
    assert settings.get_profile(EXPLORING).max_examples > settings.get_profile(SAME).max_examples


def test_every_property_draws_its_examples_as_the_profile_says(request: pytest.FixtureRequest) -> None:
    """A property that is imported before the profile is loaded keeps the ways of hypothesis itself."""
    wrong = [item.nodeid for item in request.session.items if not _follows_profile(item)]
    assert wrong == []


def _follows_profile(item: pytest.Item) -> bool:
    function: Any = getattr(item, "obj", None)
    if not is_hypothesis_test(function):
        return True
    used: settings = function._hypothesis_internal_use_settings
    return used.derandomize == settings().derandomize and used.deadline is None
