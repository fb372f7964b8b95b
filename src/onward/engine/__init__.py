"""The shell around the machine: claim, fold, plan, act. It does what the machine says and decides nothing."""
