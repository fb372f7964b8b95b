"""What requests do, under the run's lock: write events, nothing, or refuse. Begin with `requests`."""
