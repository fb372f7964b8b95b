"""The parts of a scripted model. Begin with `script`; `wire` makes bytes of it, `ledger` keeps requests."""
