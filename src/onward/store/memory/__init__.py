"""The store in memory: the reference. Begin with `adapter`, then `log`; `state` has the tables they share."""
