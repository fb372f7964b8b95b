"""The shell around the machine: claim, fold, plan, act. It does what the machine says and decides nothing.

`engine` is what every surface calls. A run that is held is executed in `loop/`, through the one appender in
`log/`, under a lease from `lease/`; `control/` has what people ask for.
"""
