"""What requests come to, under the run's lock: events, nothing, or a refusal. Begin with `requests`."""
