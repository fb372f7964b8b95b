/** What a run's state is called and which colour it has. The only place that maps statuses. */

export type Tone =
  | 'queued' | 'running' | 'waiting' | 'paused' | 'interrupted' | 'failed' | 'completed' | 'cancelled' | 'planned'

const WORDS: Record<string, string> = {
  queued: 'Queued',
  running: 'Running',
  waiting: 'Waiting',
  paused: 'Paused',
  interrupted: 'Interrupted',
  failed: 'Failed',
  completed: 'Completed',
  cancelled: 'Cancelled',
}

export const STATUSES = Object.keys(WORDS)

export function statusWord(status: string, inDoubt = false): string {
  return inDoubt ? 'In doubt' : (WORDS[status] ?? status)
}

/** The colour of a run's status, of a step's outcome, or of a row of the timeline. */
export function tone(state: string | null | undefined): Tone {
  switch (state) {
    case 'running':
    case 'open':
    case 'streaming':
    case 'started':
      return 'running'
    case 'completed':
    case 'success':
    case 'succeeded':
    case 'finished':
    case 'ok':
    case 'complete':
    case 'partial_success':
      return 'completed'
    case 'failed':
    case 'fail':
    case 'error':
      return 'failed'
    case 'interrupted':
    case 'lost':
    case 'held':
    case 'in_doubt':
    case 'in doubt':
      return 'interrupted'
    case 'waiting':
      return 'waiting'
    case 'paused':
      return 'paused'
    case 'cancelled':
    case 'skipped':
      return 'cancelled'
    case 'queued':
    case 'retrying':
      return 'queued'
    default:
      return 'planned'
  }
}

const REASONS: Record<string, string> = {
  limit: 'limit reached', crash: 'process died', restart: 'server restarted', rate_limit: 'provider asks to wait', crash_loop: 'keeps dying',
  in_doubt: 'in doubt', operator: 'paused', signal: 'paused', manager: 'paused', step_failed: 'step failed', user: 'cancelled',
}

/** Why a run stopped, in two or three words. */
export function reasonWord(reason: string): string {
  return REASONS[reason] ?? reason.replaceAll('_', ' ')
}

/** The colour of a stop: of the status that its reason leads to. */
export function stopTone(reason: string): Tone {
  switch (reason) {
    case 'operator':
    case 'signal':
    case 'manager':
      return 'paused'
    case 'crash':
    case 'restart':
    case 'limit':
    case 'in_doubt':
    case 'rate_limit':
      return 'interrupted'
    default:
      return 'failed'
  }
}

/** The tone of one tick of a run's path. */
export function tickClass(state: string, status: string): string {
  switch (state) {
    case 'finished':
      return 'completed'
    case 'open':
      // A step of a run that waits is waiting: a flow asks from inside its step.
      return status === 'waiting' ? 'waiting' : 'running open'
    default:
      return state
  }
}
