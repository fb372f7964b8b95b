"""The architecture as tests: who may import whom, which calls are banned, what every file must have."""
