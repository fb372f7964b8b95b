"""What all clients of providers share. Begin with `http`; `sse`, `refusal` and `retry_after` are pure."""
