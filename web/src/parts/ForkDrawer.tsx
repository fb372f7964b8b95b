/** A new run that takes over another's steps up to a checkpoint, with changed values. */

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useLocation } from 'wouter'
import { forkRun, listCheckpoints, newKey, Problem } from '../api/client'
import type { Checkpoint, RunPage } from '../api/types'
import { runAddress } from '../state/address'
import { keys } from '../state/keys'
import { useOffline } from '../state/live'
import { counted, whole } from '../words/money'
import { called } from '../words/names'
import { Dialog } from './Dialog'
import { Icon } from './Icon'
import { ErrorBox, Skeleton } from './States'
import { parseValue, ValueRows, type ValueRow } from './ValueRows'

/** All checkpoints: they are few, and a fork may begin at any. */
async function everyCheckpoint(id: string): Promise<Checkpoint[]> {
  const all: Checkpoint[] = []
  for (;;) {
    const page = await listCheckpoints(id, all.at(-1)?.seq ?? 0)
    all.push(...page.checkpoints)
    if (page.cursor === null || !page.checkpoints.length) return all
  }
}

const before = (one: Checkpoint, all: readonly Checkpoint[]) => {
  if (!one.next_node_id) return 'the end'
  const visits = all.filter((other) => other.seq <= one.seq && other.next_node_id === one.next_node_id && other.branch === one.branch).length
  return visits > 1 ? `${one.next_node_id}, ${ordinal(visits)} visit` : one.next_node_id
}
const ordinal = (n: number) => `${n}${['th', 'st', 'nd', 'rd'][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? 'th'}`

export function ForkDrawer({ page, at, onPick, onClose }: { page: RunPage; at: number | null; onPick: (seq: number) => void; onClose: () => void }) {
  const query = useQuery({ queryKey: [...keys.checkpoints(page.id), page.head], queryFn: () => everyCheckpoint(page.id) })
  const [values, setValues] = useState<ValueRow[]>([])
  const [key, setKey] = useState(newKey)
  const [, go] = useLocation()
  const cache = useQueryClient()
  const offline = useOffline()
  const all = query.data ?? []
  const chosen = all.find((one) => one.seq === at) ?? null
  const fork = useMutation({
    mutationFn: () => forkRun(page.id, {
      checkpoint: chosen!.seq,
      changes: Object.fromEntries(values.filter((row) => row.name).map((row) => [row.name, parseValue(row.text)])),
    }, key),
    onSuccess: (made) => {
      void cache.invalidateQueries({ queryKey: ['runs'] })
      void cache.invalidateQueries({ queryKey: keys.run(page.id) })
      go(runAddress(made.id))
    },
    onError: () => setKey(newKey()),
  })
  const problem = fork.error instanceof Problem ? fork.error : null
  const until = chosen ? Date.parse(chosen.at) : 0
  const taken = chosen ? page.steps.filter((one) => one.finished_at && Date.parse(one.finished_at) <= until) : []
  const names = new Set(taken.map((one) => one.step))
  const tokens = page.timeline.filter((row) => row.kind === 'step' && row.step && names.has(row.step)).reduce((sum, row) => sum + row.tokens, 0)
  const counts = [page.chat && !page.chat.startsWith('run/') ? `chat/${page.chat}` : '', 'day', page.project ? `project/${page.project}` : ''].filter(Boolean).join(', ')
  return (
    <Dialog drawer label={`Fork ${called(page)}`} onClose={onClose}>
      <div className="line" style={{ padding: '14px 20px', borderBottom: '1px solid var(--line)' }}>
        <h2 className="grow" style={{ fontSize: 15 }}>Fork {called(page)}</h2>
        <button type="button" className="btn sm ghost icon" aria-label="Close" onClick={onClose}><Icon name="close" size="sm" /></button>
      </div>
      <form id="fork" className="panel-body" style={{ padding: 20, gap: 18 }} onSubmit={(event) => { event.preventDefault(); fork.mutate() }}>
        <p className="mid">The original does not change. Steps before the checkpoint are kept and cost nothing.</p>
        <div className="grid gap-2">
          <span className="strong" id="fork-before">Start before</span>
          {query.isError ? <ErrorBox error={query.error} again={() => void query.refetch()} /> : query.isPending ? <Skeleton rows={4} height="34px" /> : (
            <div className="card" role="radiogroup" aria-labelledby="fork-before" style={{ maxHeight: 260, overflow: 'auto' }}>
              {all.map((one, index) => (
                <button
                  key={one.seq} type="button" role="radio" autoFocus={one === (chosen ?? all[0])} aria-checked={one.seq === at} className={`trow ${one.seq === at ? 'sel' : ''} line w-full`}
                  style={{ minHeight: 34, padding: '0 12px', borderBottom: index === all.length - 1 ? 0 : undefined }} onClick={() => onPick(one.seq)}
                >
                  <span className="mono dim right" style={{ minWidth: 24 }}>{one.seq}</span><span className="grow cut">{before(one, all)}</span>
                  {one.branch && <span className="dim small cut">{one.branch}</span>}
                  {one.seq === at && <Icon name="check" size="sm" />}
                </button>
              ))}
            </div>
          )}
        </div>
        <fieldset><legend className="strong mb-2">Change values</legend><ValueRows rows={values} onChange={setValues} known={chosen?.context ?? page.context} /></fieldset>
        {chosen && (
          <dl className="card grid gap-1 small" style={{ padding: '12px 14px', gridTemplateColumns: '1fr auto' }}>
            <dt className="mid">Taken over</dt><dd className="strong num right">{counted(taken.length, 'step')}, {whole(tokens)} tokens</dd>
            <dt className="mid">Runs again</dt><dd className="strong num right">{counted(Math.max(0, Math.max(page.steps_planned, page.steps_finished) - taken.length), 'step')}</dd>
            <dt className="mid">Counts against</dt><dd className="strong right">{counts}</dd>
          </dl>
        )}
        {problem && <p className="says-error" role="alert">{problem.message} {problem.advice}</p>}
      </form>
      <div className="line justify-end" style={{ padding: '14px 20px', borderTop: '1px solid var(--line)' }}>
        <span className="grow dim small">{!chosen && query.data ? 'Choose where the fork starts.' : ''}</span>
        <button type="button" className="btn" onClick={onClose}>Cancel</button>
        <button type="submit" form="fork" className="btn ink" disabled={!chosen || fork.isPending || !!offline} title={offline ?? (chosen ? undefined : 'Choose where the fork starts.')}><Icon name="fork" size="sm" />{fork.isPending ? 'Forking…' : 'Fork and run'}</button>
      </div>
    </Dialog>
  )
}
