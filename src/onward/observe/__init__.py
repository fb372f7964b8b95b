"""What operators see of a process: metrics, its health, and log lines that name their run.

Begin with `metrics`, `page` and `log`.
"""
