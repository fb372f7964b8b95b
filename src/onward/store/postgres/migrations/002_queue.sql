-- What workers choose by: who goes first, which handlers a run needs, how many of a pipeline may run at once.
ALTER TABLE run
    ADD COLUMN priority BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN needs TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN max_running BIGINT;

DROP INDEX run_due;
CREATE INDEX run_due ON run (priority DESC, wake_at_us, id) WHERE wake_at_us IS NOT NULL;
DROP INDEX run_held;
CREATE INDEX run_held ON run (pipeline) WHERE owner IS NOT NULL;

-- A pipeline with a ceiling has a row here. Whoever claims one of its runs locks it first, so that two of
-- them cannot both count the same free place.
CREATE TABLE ceiling (
    pipeline TEXT COLLATE "C" PRIMARY KEY NOT NULL
);
