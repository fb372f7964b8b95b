"""Where logs are kept. The protocols are in `port`; memory, SQLite and PostgreSQL stand behind them.

An adapter knows its database and nothing else: no policy, no folding, no clock but the database's own for
leases. Everything it must promise is in `onward.testing.conformance`, which all three pass.
"""
