"""A picture as plain values: what a page or another machine draws from."""

from __future__ import annotations

import json

import pytest

from onward.draw.scene import Scene, from_view, to_view
from tests.draw.pictures import FAN, RELEASE, scene_of, states_after
from tests.draw.test_text import half_way


@pytest.mark.parametrize(
    "scene", [scene_of(RELEASE), scene_of(FAN), scene_of(FAN, states_after(FAN)), half_way()]
)
def test_a_picture_comes_back_from_its_values_as_it_was(scene: Scene) -> None:
    values = json.loads(json.dumps(to_view(scene)))
    assert from_view(values, title=scene.title) == scene
