"""What Onward's own tests use, shipped for yours. Begin with `conformance/`; only tests import it."""
