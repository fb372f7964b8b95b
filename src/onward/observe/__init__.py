"""What operators see of a process: metrics, whether it is well, and lines of a log that name their run."""
