"""What operators see of a process: metrics, its health, and log lines that name their run.

Begin with `metrics` (what this process counts) and `figures` (what its database holds); `pages` serves both,
`log` writes for machines, and `traces` sends `spans` to OpenTelemetry.
"""
