"""The HTTP server: a thin skin over `operations`. A route that decides anything is in the wrong room.

Begin with `app`: it makes the application of a `Context` and the rooms that answer, and every request goes
through its door. A room is a module with `places(context)`: `api` has the operations (their table is
`operations/http.py`), `sessions` signs in and out, `pages` has what a browser and a probe need. What a place
is, and what it is given, is in `place`.

The door refuses before it routes: `hosts` (whose address and page is it), `credentials` (who asks), `rates`
(how often). `problems` says how a refusal is told. `life` starts and ends it all; `settings` reads `[serve]`.
"""
