"""Connections to a PostgreSQL server: opening, pooling, listening, and telling failures apart.

Begin with `pool` (how everything else uses connections), then `wire` (several statements in one trip) and
`failure` (what each error means).
"""
