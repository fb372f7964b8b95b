"""The shell around the machine: claim, fold, plan, act. It does what the pure functions say and decides nothing."""
