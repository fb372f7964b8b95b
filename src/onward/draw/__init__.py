"""A pipeline as a picture: pure functions from a graph, and what a run did in it, to SVG and to text.

Nothing here reads a file, a clock or a database, so a picture is the same wherever it is asked for. The
parts, each of which knows only the ones before it:

- `layout/`: how wide a text is, and where boxes and lines go
- `way`, `states`: what a run did, from its log and its fold
- `scene`: the boxes, lines and words of one picture
- `svg/`: the picture as SVG
- `text`: the same for a terminal; `view`: as plain values

The layout is the classic one in layers. An edge that leads back to a node on the way to it is a loop and
is turned round while ranks are chosen; the longest way from the start is a node's rank; an edge that passes
ranks, or carries a caption, gets a cell of its own in every layer that it passes. Lines run straight
through the cells and bend only between layers, where nothing else is: so no line ever crosses a box.

Labels are hostile until shown otherwise: what is drawn has no control characters, and is cut to a length.
"""
