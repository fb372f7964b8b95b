"""Judging and charging calls, for every store alike: pure, over scopes that the store has locked."""
