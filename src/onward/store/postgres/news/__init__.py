"""What people are told of runs: questions that are open, and notifications. Begin with `outbox`."""
