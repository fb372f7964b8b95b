"""What all providers share. Begin with `client`, then `format`: what a wire format adds to it.

`http` alone touches the network; `reading`, `gathered`, `sse`, `refusal` and `retry_after` are pure.
"""
