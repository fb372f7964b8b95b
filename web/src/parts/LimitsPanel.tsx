/** The limits that can stop this run, where it stopped: change, save, and the server says whether they leave room. */

import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { getRun, listLimits, Problem, resetLimits, setLimit } from '../api/client'
import type { LimitList, LimitStop, RunState, ScopeShown } from '../api/types'
import { keys } from '../state/keys'
import { useRole } from '../state/me'
import { amount, counted, money, parseAmount, whole } from '../words/money'
import { Status } from './Status'

type Measure = 'tokens' | 'cost' | 'calls'

interface Row {
  scope: string
  measure: Measure
  label: string
  hint: string
  value: number | null
  isOwn: boolean
  standard: number | null
  off: boolean
}

const field = (measure: Measure) => (measure === 'cost' ? 'cost_micro' : measure)

const WHOSE: Record<string, string> = { chat: 'of this chat', run: 'of this run', project: 'of the project', day: 'of a day' }

/** The four rows, from what is set and what is spent; first the limit that stopped the run, if it is another. */
function rowsOf(limits: LimitList, run: RunState, stop: LimitStop | null): Row[] {
  const find = (scope: string): ScopeShown | undefined => limits.scopes.find((one) => one.scope === scope)
  const of = (scope: string | undefined, measure: Measure) => (scope ? find(scope)?.[field(measure)] : undefined)
  const row = (scope: string, base: string, measure: Measure, label: string, spentIn: string, hint: (spent: number) => string, fallback: number | null = null): Row => {
    const own = of(scope, measure)
    const standard = scope === base ? null : (fallback ?? of(base, measure)?.limit ?? null)
    const wants = stop?.scope === spentIn && stop.measure === measure
      ? ` The next call may need ${measure === 'cost' ? money(stop.wanted) : whole(stop.wanted)}.` : ''
    return {
      scope, measure, label, hint: hint(of(spentIn, measure)?.spent ?? 0) + wants,
      value: own?.limit ?? standard, isOwn: !!own?.is_own && own.limit !== standard, standard, off: false,
    }
  }
  const today = new Date().toISOString().slice(0, 10)
  const chat = `chat/${run.chat}`
  const own = `run/${run.id}`
  // A run that a chat starts has a limit of its own, unless one is set for every run.
  const inChat = !!run.chat && !run.chat.startsWith('run/')
  const project = run.project ? `project/${run.project}` : ''
  const rows: Row[] = [
    row(chat, 'chat', 'tokens', 'Tokens of this chat', chat, (spent) => `${whole(spent)} used.`),
    row(own, 'run', 'calls', 'Calls of a run', own, (spent) => `${counted(spent, 'call')} used in this run`, inChat ? limits.chat_run_calls : null),
    row('day', 'day', 'cost', 'Cost of a day', `day/${today}`, (spent) => `${money(spent)} spent today, UTC`),
    project
      ? row(project, 'project', 'cost', 'Cost of the project', project, (spent) => `${money(spent)} spent in ${run.project}`)
      : { scope: '', measure: 'cost', label: 'Cost of the project', hint: 'No project', value: null, isOwn: false, standard: null, off: true },
  ]
  if (!stop || rows.some((one) => stops(one, stop))) return rows
  const kind = stop.scope.split('/')[0]!
  const measure = stop.measure as Measure
  // A day has a limit of its own only if one was set for it: otherwise the limit of every day stopped the run.
  const scope = kind === 'day' && !of(stop.scope, measure)?.is_own ? kind : stop.scope
  const label = `${measure[0]!.toUpperCase()}${measure.slice(1)} ${WHOSE[kind] ?? ''}`
  return [row(scope, kind, measure, label, stop.scope, (spent) => `${measure === 'cost' ? money(spent) : whole(spent)} used.`), ...rows]
}

const MEASURES: readonly string[] = ['tokens', 'cost', 'calls']

/** Whether a row is the limit that stopped the run, or is no limit of a scope: visits are raised with the run. */
const stops = (row: Row, stop: LimitStop) =>
  !MEASURES.includes(stop.measure) || (row.measure === stop.measure && (row.scope === stop.scope || stop.scope.startsWith(`${row.scope}/`)))

export function LimitsPanel({ run, stop, texts, setTexts, onSaved }: {
  run: RunState
  stop: LimitStop | null
  /** What is written and not saved, by row: it outlives the panel, so that hiding it loses nothing. */
  texts: Record<string, string>
  setTexts: (texts: Record<string, string>) => void
  onSaved: (hasRoom: boolean) => void
}) {
  const cache = useQueryClient()
  const admin = useRole('admin')
  const { data } = useQuery({ queryKey: keys.limits, queryFn: ({ signal }) => listLimits(signal), staleTime: 0 })
  const [errors, setErrors] = useState<Record<string, string>>({})
  const [busy, setBusy] = useState(false)
  const [saved, setSaved] = useState(false)
  if (!data) return <div className="panel lim" aria-busy="true" style={{ minHeight: 250 }} />
  const rows = rowsOf(data, run, stop)

  const after = async (failed: Record<string, string>) => {
    await cache.invalidateQueries({ queryKey: keys.limits })
    // Whether the limits leave room now is the server's word, and so is the sentence if they do not.
    const now = await getRun(run.id).catch(() => null)
    const isOver = now?.banner?.kind === 'limit' && !now.banner.actions.includes('resume')
    if (isOver) {
      const row = rows.find((one) => stop && stops(one, stop)) ?? rows[0]!
      failed[row.label] ??= `${now.banner!.line.split('. ')[0]}.`
    }
    setErrors(failed)
    setSaved(!Object.keys(failed).length)
    onSaved(!!now && !isOver && !Object.keys(failed).length)
    setBusy(false)
  }
  const save = async () => {
    setBusy(true)
    setSaved(false)
    const failed: Record<string, string> = {}
    const kept: Record<string, string> = {}
    for (const row of rows) {
      const text = texts[row.label]
      if (text === undefined || row.off) continue
      const value = parseAmount(row.measure, text)
      try {
        if (value === null) throw new Problem(422, 'invalid_input', 'Enter a number, or none.')
        if (value !== (row.value ?? 0)) await setLimit(row.scope, row.measure, value)
      } catch (error) {
        failed[row.label] = error instanceof Problem ? error.message : String(error)
        kept[row.label] = text
      }
    }
    setTexts(kept)
    await after(failed)
  }
  const reset = async () => {
    setBusy(true)
    const failed: Record<string, string> = {}
    for (const row of rows.filter((one) => one.isOwn))
      await resetLimits(row.scope).catch((error: unknown) => void (failed[row.label] = error instanceof Problem ? error.message : String(error)))
    setTexts({})
    await after(failed)
  }
  return (
    <form className="panel lim" aria-label="Limits" onSubmit={(event) => { event.preventDefault(); void save() }}>
      <div className="line">
        <span className="strong grow">Limits</span>
        <span className="h right" style={{ width: 150 }}>Limit</span>
        <span className="h hide-s" style={{ width: 62 }}>Default</span>
      </div>
      {rows.map((row, at) => {
        const error = errors[row.label]
        return (
          <div className="r" key={row.label}>
            <div>
              <div className="line"><label htmlFor={`limit-${at}`} className="strong">{row.label}</label>{row.isOwn && <span className="tag custom">custom</span>}</div>
              <p className="num">{row.hint}</p>
            </div>
            <div className={`field ${error ? 'err' : ''}`}>
              <input
                id={`limit-${at}`} className="num right" inputMode="decimal" autoComplete="off" disabled={row.off || !admin} aria-invalid={!!error}
                aria-describedby={error ? `limit-${at}-why` : undefined} value={texts[row.label] ?? amount(row.measure, row.value)}
                onFocus={(event) => event.target.select()}
                onChange={(event) => { setSaved(false); setTexts({ ...texts, [row.label]: event.target.value }) }}
              />
            </div>
            <span className="dim num small">{amount(row.measure, row.standard)}</span>
            {error && <p id={`limit-${at}-why`} className="says-error" role="alert" style={{ gridColumn: '1 / -1', color: 'var(--failed-ink)' }}>{error}</p>}
          </div>
        )
      })}
      <div className="line" style={{ borderTop: '1px solid var(--line)', paddingTop: 12 }}>
        {admin ? <button type="button" className="link" disabled={busy || !rows.some((row) => row.isOwn)} onClick={() => void reset()}>Reset all</button> : <span className="small dim">Only an admin can change limits.</span>}
        <span className="grow" />
        <span role="status" className="small">{saved && <span className="completed"><Status status="completed" word="Saved" /></span>}</span>
        {admin && <button type="submit" className="btn sm amber" disabled={busy}>{busy ? 'Saving…' : 'Save limits'}</button>}
      </div>
    </form>
  )
}
