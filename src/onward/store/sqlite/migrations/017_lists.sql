-- Most runs of a pipeline have completed, so these are found by the pipeline alone, and cost nothing here. A list by this
-- index says that it wants no completed runs: SQLite cannot conclude it from a status that it is given.
DROP INDEX run_by_status_and_pipeline;
CREATE INDEX run_by_status_and_pipeline ON run (status, pipeline, created_at_us) WHERE status <> 'completed';
