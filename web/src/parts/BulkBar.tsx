/** What can be done with the selected runs, and what came of it for each. */

import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { cancelMany, Problem, resumeMany, type ManyResults } from '../api/client'
import type { RunListed } from '../api/types'
import { useOffline } from '../state/live'
import { useRole } from '../state/me'
import { counted } from '../words/money'
import { called } from '../words/names'
import { ConfirmDialog } from './Dialog'
import { Icon } from './Icon'
import { toast, toastProblem } from './Toasts'

const OVER = ['completed', 'cancelled', 'failed']

export function BulkBar({ runs, onClear }: { runs: readonly RunListed[]; onClear: () => void }) {
  const may = useRole('operator')
  const offline = useOffline()
  const cache = useQueryClient()
  const [busy, setBusy] = useState(false)
  const [asks, setAsks] = useState(false)
  const resumable = runs.filter((run) => run.recoverable && !run.step_in_doubt)
  const open = runs.filter((run) => !OVER.includes(run.status) || run.recoverable)
  const says = resumable.length === runs.length ? (runs.length === 2 ? 'both can resume' : runs.length === 1 ? 'can resume' : 'all can resume')
    : resumable.length ? `${resumable.length} can resume` : 'none can resume'

  const send = async (post: (runs: string[]) => Promise<ManyResults>, chosen: readonly RunListed[], word: string) => {
    setBusy(true)
    try {
      const { results } = await post(chosen.map((run) => run.id))
      const refused = results.filter((one) => one.problem)
      toast(`${counted(results.length - refused.length, 'run')} ${word}.`, 'completed')
      for (const one of refused.slice(0, 2)) {
        const run = chosen.find(({ id }) => id === one.run)
        toast(`${run ? called(run) : one.run}: ${one.problem!.detail}`)
      }
      onClear()
    } catch (error) {
      toastProblem(error instanceof Problem ? error : new Problem(0, 'offline', String(error)))
    } finally {
      setBusy(false)
      void cache.invalidateQueries()
    }
  }

  if (!runs.length) return null
  return (
    <div className="bulk" role="region" aria-label="Selected runs">
      <b className="strong">{runs.length} selected</b>
      <span className="mid mr-2 hide-s">{says}</span>
      {may && !!resumable.length && (
        <button type="button" className="btn sm amber" disabled={busy || !!offline} title={offline} onClick={() => void send(resumeMany, resumable, 'resumed')}>
          <Icon name="retry" size="sm" />Resume {resumable.length}
        </button>
      )}
      {may && !!open.length && (
        <button type="button" className="btn sm danger" disabled={busy || !!offline} title={offline} onClick={() => setAsks(true)}>Cancel {open.length}…</button>
      )}
      <button type="button" className="btn sm ghost icon" aria-label="Clear the selection" onClick={onClear}><Icon name="close" size="sm" /></button>
      {asks && (
        <ConfirmDialog title={`Cancel ${counted(open.length, 'run')}?`} yes={`Cancel ${open.length}`} onClose={() => setAsks(false)} onYes={() => void send(cancelMany, open, 'cancelled')}>
          They end for good and cannot be resumed. Finished steps can still be read and forked.
        </ConfirmDialog>
      )}
    </div>
  )
}
