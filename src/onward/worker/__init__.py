"""Workers: processes that claim due runs and execute them. Begin with `worker`."""
