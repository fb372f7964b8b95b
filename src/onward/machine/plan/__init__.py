"""What the holder of a run does next. Begin with `planner`; `advance` plans until something must be done."""
