-- Needs no holders: an older one would queue its run without the time at which it is due.
-- When a run is due by the database's clock: as long after its wake time was written as the writer wanted it to
-- wait. Writers' clocks differ, so the wake time itself cannot be compared with anybody else's.
ALTER TABLE run ADD COLUMN due_at_us BIGINT;
UPDATE run
SET due_at_us = wake_at_us
WHERE wake_at_us IS NOT NULL;

DROP INDEX run_due;
CREATE INDEX run_due ON run (priority DESC, due_at_us, id) WHERE due_at_us IS NOT NULL;

-- A due run that could not be claimed, as its log stood at `head`: once that has changed, this says nothing.
CREATE TABLE stuck (
    run_id TEXT COLLATE "C" PRIMARY KEY NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    head BIGINT NOT NULL,
    failures BIGINT NOT NULL CHECK (failures >= 1),
    failed_at_us BIGINT NOT NULL,
    why TEXT NOT NULL
);
