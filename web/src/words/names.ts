/** What people call a run. */

const GENERATED = /^[0-9a-hjkmnp-tv-z]{26}$/

/** The id that was chosen for a run, or else its display id: the same name as on the command line. */
export const called = (run: { id: string; display_id: string }) => (GENERATED.test(run.id) ? run.display_id : run.id)
