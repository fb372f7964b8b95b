"""A pipeline as a picture: pure functions from a graph, and what a run did in it, to SVG and to text.

Nothing here reads a file, a clock or a database. The parts, each of which knows only the ones before it:

- `geometry`: positions, sizes, how wide a text is, and the outlines of shapes
- `layers`, `layout`: where boxes and lines go
- `states`: what a run did, from its log and its fold
- `scene`: the boxes, lines and words of one picture, also as plain values
- `svg`: the picture as SVG
- `text`: the same for a terminal

The layout is the classic layered one. An edge that closes a cycle is reversed while ranks are chosen. A
node's rank is its longest distance from the start. An edge that spans several ranks, or has a caption, gets
a cell in every layer that it passes. Lines run straight through cells and bend only between layers, where
there is nothing else, so no line crosses a box.

Labels are untrusted: control characters are removed, and long text is cut.
"""
