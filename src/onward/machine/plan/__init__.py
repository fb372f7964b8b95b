"""What the holder of a run does next.

Begin with `planner`; its `advance` plans until something must be done, and says so with an `action`.
`branch` plans one branch, `nodes` has the rules of gates, fan-outs and fan-ins, `route` says where a run
goes after a step. `results` turns what was done into events.
"""
