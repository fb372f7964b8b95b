"""The graph of a run as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.server.door import Door, a_door

SOURCE = """digraph site {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="x", label="<script>alert(1)</script>\\"' onload=alert(1)", URL="javascript:alert(1)",
     href="javascript:alert(1)", image="/etc/passwd", tooltip="<b onclick=x>"]
  start -> a [label="</text><script>"]; a -> exit
}"""


async def drawn(door: Door) -> str:
    assert (await door.ask("PUT", "/api/pipelines/site", {"source": SOURCE})).status == 200
    made = await door.post("/api/runs", {"pipeline": "site"})
    return f"/api/runs/{made.json['run']['id']}/graph"


async def test_a_graph_is_a_picture_for_who_accepts_one() -> None:
    async with a_door() as door:
        path = await drawn(door)
        picture = await door.get(path, role="viewer", headers={"accept": "image/svg+xml"})
        assert (picture.status, picture.header("content-type")) == (200, "image/svg+xml; charset=utf-8")
        policy = picture.header("content-security-policy") or ""
        assert policy.split("; ") == ["default-src 'none'", "style-src 'unsafe-inline'", "sandbox"]
        for accept in ("*/*", "application/json", "application/json, image/svg+xml"):
            reply = await door.get(path, role="viewer", headers={"accept": accept})
            assert reply.json["geometry"]["nodes"], accept


async def test_nothing_in_a_picture_is_anything_but_text() -> None:
    """S5, S6: what a pipeline says is written as text; links and images of it are not passed on."""
    async with a_door() as door:
        picture = await door.get(await drawn(door), headers={"accept": "image/svg+xml"})
    elements = list(ElementTree.fromstring(picture.body).iter())
    names = {element.tag.rpartition("}")[2] for element in elements}
    assert names <= {
        "svg",
        "title",
        "desc",
        "style",
        "g",
        "rect",
        "path",
        "text",
        "tspan",
        "circle",
        "ellipse",
    } | {
        "polygon",
        "polyline",
        "line",
        "defs",
        "marker",
    }, names
    attributes = {name.rpartition("}")[2].lower() for element in elements for name in element.attrib}
    assert not [name for name in attributes if name.startswith("on") or name in ("href", "src")]
    assert b"/etc/passwd" not in picture.body
    assert "<script>alert(1)</script>" in "".join(element.text or "" for element in elements)
