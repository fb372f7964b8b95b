"""The tools that make HTTP requests. Begin with `addresses`: where a request may go is decided there.

    url ──► parsed once ──► in the allow-list? ──► resolved once ──► all addresses checked ──► connected
             ▲                                                                                  │
             └───────────────────────── a redirect, three at most ──────────────────────────────┘

Nothing is allowed by default. The address that is connected to is one of those that were checked: no name is
resolved a second time, and no other reader of addresses is asked what an address means.
"""
