"""The HTTP server: a thin layer over `operations`. Routes decide nothing themselves.

Begin with `app`: it builds the application from a `Context` and the rooms, and every request passes its
door. A room is a module with `places(context)`: `api` has the operations (their table is
`operations/http.py`), `sessions` signs in and out, `pages` serves browsers and probes. `place` defines what a
place is and what it receives.

The door rejects requests before routing: `hosts` (address and origin), `credentials` (who sent it), `rates`
(how often). `problems` defines the error replies. `life` starts and stops the server; `settings` reads
`[serve]`.
"""
