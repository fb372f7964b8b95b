"""Who holds a run: `claims` takes it, `keeper` renews it, `queue` finds due runs, `sweep` dead owners."""
