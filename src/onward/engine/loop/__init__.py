"""Execute one held run until it stops. Begin with `run_loop`, then `execute` and `attempt`."""
