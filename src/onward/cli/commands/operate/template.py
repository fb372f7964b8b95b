"""`onward simulate-script`: a simulation script to begin with."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening.app import common_app
from onward.cli.options import COMMON, Common, Out, RealTools
from onward.operations.here.submission import script_template


async def simulate_script(
    file: Annotated[str, Parameter(help="The pipeline: a DOT file.")],
    /,
    *,
    real_tools: RealTools = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a simulation script for a pipeline, for `onward run FILE --simulate SCRIPT.json`.

    It has an entry for every agent, tool and handler of your app, and lets each succeed. It is JSON, and it
    can be used as it is. With --real-tools: only for agents.
    """
    app = common_app(common)
    template = script_template(app.read(file), app.read, real_tools=real_tools)
    if out.is_json:
        out.value(template)
    else:
        out.say(json.dumps(template, indent=2, ensure_ascii=False))
    return FINE
