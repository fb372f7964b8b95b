"""Who holds a run: `claims` claims it, `keeper` renews it, `queue` finds due runs, `sweep` dead holders."""
