"""The reference store; see `adapter`."""
