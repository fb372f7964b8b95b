"""Tools of servers that speak the Model Context Protocol. Begin with `source`.

    source: Connection ──► protocol: McpSession ──► Channel (`stdio`: a child process of ours, or `http`)
    one per process        the handshake            one message out, its answer back

A server is not trusted: what it sends is bounded, what it says about its tools may make their use stricter
and never easier unless the settings say so, and it can ask nothing of us.
"""
