"""Colours for light and dark mode, and a mark for every state, so that no state shows by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from onward.draw.states import NodeStatus


class Tint(NamedTuple):
    """The colours of a box: its inside, its outline, and its small words."""

    fill: str
    stroke: str
    words: str


class Mark(NamedTuple):
    """A sign for a state: on a terminal, on one without Unicode, and drawn around the origin."""

    sign: str
    plain: str
    drawing: str


LIGHT: Mapping[NodeStatus, Tint] = {
    NodeStatus.RUNNING: Tint("#ddf0ff", "#0969da", "#0550ae"),
    NodeStatus.WAITING: Tint("#fff4c9", "#b07d00", "#7a5200"),
    NodeStatus.RETRYING: Tint("#ffe9d6", "#cf5b0a", "#993c00"),
    NodeStatus.FAILED: Tint("#ffe5e4", "#cf222e", "#a40e26"),
    NodeStatus.INTERRUPTED: Tint("#f2e9ff", "#8250df", "#6639ba"),
    NodeStatus.PARTIAL: Tint("#eef6cf", "#6b7f00", "#505f00"),
    NodeStatus.SKIPPED: Tint("#eef1f5", "#7d8794", "#57606a"),
    NodeStatus.SUCCEEDED: Tint("#dcf6e3", "#1a7f37", "#116329"),
    NodeStatus.NOT_REACHED: Tint("#ffffff", "#a9b2bd", "#5f6873"),
}
DARK: Mapping[NodeStatus, Tint] = {
    NodeStatus.RUNNING: Tint("#0e2f57", "#4c9bff", "#8fc3ff"),
    NodeStatus.WAITING: Tint("#3d2e00", "#d8a40c", "#f0c94b"),
    NodeStatus.RETRYING: Tint("#45240a", "#f0883e", "#ffb37a"),
    NodeStatus.FAILED: Tint("#4a1518", "#f85149", "#ff9d96"),
    NodeStatus.INTERRUPTED: Tint("#33205c", "#a778f5", "#cdb0ff"),
    NodeStatus.PARTIAL: Tint("#2f3608", "#a3b82a", "#cbdc63"),
    NodeStatus.SKIPPED: Tint("#22272e", "#7d8590", "#a5adb8"),
    NodeStatus.SUCCEEDED: Tint("#123a20", "#3fb950", "#7ddf8e"),
    NodeStatus.NOT_REACHED: Tint("#161b22", "#59626d", "#98a2ad"),
}
MARKS: Mapping[NodeStatus, Mark] = {
    NodeStatus.RUNNING: Mark("●", "*", '<circle class="on" r="4.2"/>'),
    NodeStatus.WAITING: Mark("?", "?", '<path d="M-2.8-2.2a2.8 2.6 0 1 1 4.4 2.1q-1.6 1-1.6 2.2M0 4.6v.3"/>'),
    NodeStatus.RETRYING: Mark("↻", "~", '<path d="M3.6 1.6A4 4 0 1 1 3-2.7M3.6-4.8v2.6H1"/>'),
    NodeStatus.FAILED: Mark("✗", "x", '<path d="M-3.4-3.4 3.4 3.4M3.4-3.4-3.4 3.4"/>'),
    NodeStatus.INTERRUPTED: Mark("!", "!", '<path d="M0-4.6V1M0 4.3v.3"/>'),
    NodeStatus.PARTIAL: Mark("◐", "%", '<circle r="4"/><path class="on" d="M0-4A4 4 0 0 0 0 4z"/>'),
    NodeStatus.SKIPPED: Mark("»", ">", '<path d="M-4-3.4-.6 0-4 3.4M.6-3.4 4 0 .6 3.4"/>'),
    NodeStatus.SUCCEEDED: Mark("✓", "+", '<path d="M-4 .4-1.2 3.2 4-3.2"/>'),
    NodeStatus.NOT_REACHED: Mark("·", ".", '<circle r="3"/>'),
}
NAMES: Mapping[NodeStatus, str] = {status: status.value.replace(" ", "-") for status in NodeStatus}
"""The class of a state in the style sheet."""

_BASE = """\
.onward text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.onward .label{font-size:13px;font-weight:600}
.onward .small,.onward .caption{font-size:11px}
.onward .heading{font-size:15px;font-weight:600}
.onward .condition{font-style:italic}
.onward .middle{text-anchor:middle}
.onward .shape{stroke-width:1.5;stroke-linejoin:round}
.onward .inside{fill:none;stroke-width:1.2}
.onward .skipped .shape{stroke-dasharray:5 3}
.onward .running .shape,.onward .waiting .shape,.onward .failed .shape{stroke-width:2.5}
.onward .line{fill:none;stroke-width:1.3}
.onward .taken .line{stroke-width:2.4}
.onward .jump .line{stroke-dasharray:2 4;stroke-linecap:round}
.onward .mark{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.onward .mark .on{stroke:none}
.onward .next{fill:none;stroke-width:1.5;stroke-dasharray:3 3}
"""


def style_sheet() -> str:
    """The rules for light mode, and those that override them in dark mode."""
    light = _rules(LIGHT, page="#ffffff", ink="#1f2328", dim="#59636e", line="#98a1ab", taken="#24292f")
    dark = _rules(DARK, page="#0d1117", ink="#e6edf3", dim="#9ba5b0", line="#6b7480", taken="#e6edf3")
    return f"{_BASE}{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n"


def _rules(tints: Mapping[NodeStatus, Tint], *, page: str, ink: str, dim: str, line: str, taken: str) -> str:
    plain = tints[NodeStatus.NOT_REACHED]
    rules = [
        f".onward .page,.onward .halo{{fill:{page}}}",
        f".onward .label,.onward .heading{{fill:{ink}}}",
        f".onward .small,.onward .caption{{fill:{dim}}}",
        f".onward .shape{{fill:{plain.fill};stroke:{ink}}}",
        f".onward .inside{{stroke:{ink}}}",
        f".onward .line{{stroke:{line}}}.onward .tip{{fill:{line}}}",
        f".onward .plain .line{{stroke:{dim}}}.onward .plain .tip{{fill:{dim}}}",
        f".onward .taken .line{{stroke:{taken}}}.onward .taken .tip,.onward .taken .caption{{fill:{taken}}}",
        f".onward .next{{stroke:{dim}}}",
    ]
    for status, tint in tints.items():
        own = f".onward .{NAMES[status]}"
        rules += [
            f"{own} .shape{{fill:{tint.fill};stroke:{tint.stroke}}}{own} .inside{{stroke:{tint.stroke}}}",
            f"{own} .small{{fill:{tint.words}}}{own} .mark{{stroke:{tint.words}}}",
            f"{own} .mark .on{{fill:{tint.words}}}",
        ]
    return "\n".join(rules) + "\n"
