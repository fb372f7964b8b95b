"""The shell around the machine: claim, fold, plan, act.

It does what the machine says and decides nothing. `engine` is what every surface calls. A run goes this way:

    control/ ──► claims ──► loop ──► attempt ──► a handler, and its recorded calls
                              │                               │
                              └────────► appender ◄───────────┘
                                            │
                                         journal ──► the store's log

- A held run: `loop` executes it until it stops, `attempt` one attempt of a step, `hold` stops one between
  two calls. `calls` has the recorded calls inside an attempt, `call_log` what the log knows of them.
- Its log: `log` folds, redacts and seals, `journal` reads and writes, and `appender` is the one writer of a
  held run. `persist` has the calls that must go through.
- Who holds it: `claims` claims, renews and releases, `queue` finds due runs and dead holders. `stop`
  is how a process is asked to stop.
- What it is: `sources` has its pipeline, `definitions` the handlers of its nodes.
- What a step has besides calls: `messages`, `effects` and a room in `files/`; `leftovers` is what one in
  doubt left. `overseer` is a step that manages another run, its `child`.
- `control/` has what people ask for, `files/` what is on disk.
"""
