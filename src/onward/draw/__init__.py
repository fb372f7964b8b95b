"""A pipeline as a picture: pure functions from a graph, and what a run did in it, to SVG and to text.

Nothing here reads a file, a clock or a database. The parts, each of which knows only the ones before it:

- `layout/`: how wide a text is, and where boxes and lines go
- `trace`, `states`: what a run did, from its log and its fold
- `scene`: the boxes, lines and words of one picture
- `svg/`: the picture as SVG
- `text`: the same for a terminal; `view`: as plain values

The layout is the classic layered one. An edge that closes a cycle is reversed while ranks are chosen. A
node's rank is its longest distance from the start. An edge that spans several ranks, or has a caption, gets
a cell in every layer that it passes. Lines run straight through cells and bend only between layers, where
there is nothing else, so no line crosses a box.

Labels are untrusted: control characters are removed, and long text is cut.
"""
