"""What a log means: events in, a `Run` out. Begin with `apply`."""
