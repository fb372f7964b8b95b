/** What is spent, what is left? */

import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { getUsage, listLimits, Problem, resetLimits, serverNow, setLimit } from '../api/client'
import type { MeasureShown, ScopeShown, UsageShown } from '../api/types'
import { Bars, limitIsNear } from '../parts/Bars'
import { ConfirmDialog, Dialog } from '../parts/Dialog'
import { Icon } from '../parts/Icon'
import { Meter } from '../parts/Meter'
import { Title, useStats } from '../parts/Shell'
import { ErrorBox, Skeleton } from '../parts/States'
import { toastProblem } from '../parts/Toasts'
import { chatAddress, runAddress, search, useParams } from '../state/address'
import { keys } from '../state/keys'
import { useFollow, useOffline } from '../state/live'
import { useRole } from '../state/me'
import { amount, counted, money, parseAmount, total, whole } from '../words/money'

const BYS = ['run', 'chat', 'project', 'day', 'pipeline', 'model'] as const
const MEASURES = ['tokens', 'cost', 'calls'] as const
type Measure = (typeof MEASURES)[number]
const of = (scope: ScopeShown, measure: Measure): MeasureShown => (measure === 'cost' ? scope.cost_micro : scope[measure])

export default function Limits() {
  const [params] = useParams()
  const by = BYS.find((one) => one === params.get('by')) ?? 'day'
  useFollow({})
  return (
    <>
      <Title>Limits and usage</Title>
      <div className="top">
        <h1>Limits and usage</h1>
        <span className="grow" />
        <nav className="seg hide-s" aria-label="Usage by">{BYS.map((one) => <Link key={one} href={`/limits${search({ by: one })}`} className={one === by ? 'on' : ''} aria-current={one === by ? 'page' : undefined}>{one[0]!.toUpperCase() + one.slice(1)}</Link>)}</nav>
      </div>
      <div className="body pad grid gap-4" style={{ alignContent: 'start', gridAutoRows: 'max-content' }} tabIndex={0} role="region" aria-label="Limits and usage">
        <Today />
        <Usage by={by} />
        <Scopes />
      </div>
    </>
  )
}

const useLimits = () => useQuery({ queryKey: keys.limits, queryFn: ({ signal }) => listLimits(signal), refetchInterval: 15_000 })
const useUsage = (by: string) => useQuery({ queryKey: keys.usage(by), queryFn: ({ signal }) => getUsage(by, 200, signal), refetchInterval: 15_000 })

/** Four figures of today. */
function Today() {
  const limits = useLimits().data
  const day = new Date().toISOString().slice(0, 10)
  const usage = useUsage('day').data?.usage.find((one) => one.what === day)
  const models = useUsage('model').data?.usage ?? []
  const stats = useStats().data
  const scope = limits?.scopes.find((one) => one.scope === `day/${day}`)
  const base = limits?.scopes.find((one) => one.scope === 'day')
  const cost = scope?.cost_micro
  const limit = cost?.limit ?? base?.cost_micro.limit ?? null
  const estimated = models.reduce((sum, one) => sum + one.estimated, 0)
  const calls = models.reduce((sum, one) => sum + one.calls, 0)
  // A call whose process died is counted as what it had reserved.
  const guessed = usage ? usage.tokens - usage.input - usage.output : 0
  const tokenLimit = scope?.tokens.limit ?? base?.tokens.limit ?? null
  return (
    <div className="kp">
      <div className="card"><span className="h">Cost today, UTC</span><b>{total(usage?.cost_micro ?? 0, usage?.tokens ?? 0)}</b><Meter spent={usage?.cost_micro ?? 0} reserved={cost?.reserved ?? 0} limit={limit} /><div className="line">{limit ? `of ${money(limit)}` : 'no limit'}<span className="grow" />{!!cost?.reserved && `${money(cost.reserved)} reserved`}</div></div>
      <div className="card"><span className="h">Tokens today</span><b>{whole(usage?.tokens ?? 0)}</b><Meter spent={usage?.tokens ?? 0} reserved={scope?.tokens.reserved ?? 0} limit={tokenLimit} /><div className="line">{whole(usage?.input ?? 0)} in · {whole(usage?.output ?? 0)} out{guessed > 0 && ` · ${whole(guessed)} estimated`}</div></div>
      <div className="card"><span className="h">Read from a cache</span><b>{whole(usage?.cached ?? 0)}</b><Meter spent={usage?.cached ?? 0} reserved={0} limit={usage?.input || null} /><div className="line">of {whole(usage?.input ?? 0)} tokens in, {counted(usage?.calls ?? 0, 'call')}</div></div>
      <div className="card"><span className="h">Estimated, not confirmed</span><b>{whole(estimated)}</b><Meter spent={0} reserved={estimated} limit={calls || null} /><div className="line">{counted(estimated, 'call')} whose process died{stats && stats.runs.stalled ? ` · ${counted(stats.runs.stalled, 'stalled run')}` : ''}</div></div>
    </div>
  )
}

function Usage({ by }: { by: (typeof BYS)[number] }) {
  const query = useUsage(by)
  const limits = useLimits().data
  if (query.isError && !query.data) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (!query.data) return <div className="card"><Skeleton rows={4} /></div>
  const usage = query.data.usage
  const isPriced = usage.some((one) => one.cost_micro > 0)
  const name = `${isPriced ? 'Cost' : 'Tokens'} by ${by}`
  const limit = isPriced && by === 'day' ? limits?.scopes.find((one) => one.scope === 'day')?.cost_micro.limit ?? null : null
  const bars = by === 'day' ? lastDays(usage).map((one) => ({ name: one.what, short: String(Number(one.what.slice(-2))), value: isPriced ? one.cost_micro : one.tokens })) : []
  return (
    <section className="card" aria-label={name}>
      <header>{name}<span className="grow" />{limit && <span className="leg" style={{ fontWeight: 450 }}>{limitIsNear(bars, limit) ? <span><i style={{ background: 'var(--interrupted-solid)', height: 2, verticalAlign: 3 }} />limit</span> : <span className="dim">limit {money(limit)}, far above</span>}</span>}</header>
      {!usage.length ? <div className="none"><p>No usage yet.</p></div>
        : by === 'day' ? <div style={{ padding: '14px 16px 8px' }}><Bars label={name} bars={bars} words={isPriced ? money : whole} limit={limit} /></div>
        : <UsageTable usage={usage.slice(0, 20)} by={by} isPriced={isPriced} />}
    </section>
  )
}

const DAYS = 14
/** The last days up to today, also those on which nothing was spent. */
function lastDays(usage: readonly UsageShown[]) {
  const known = new Map(usage.map((one) => [one.what, one]))
  return Array.from({ length: DAYS }, (_, at) => {
    const what = new Date(serverNow() - (DAYS - 1 - at) * 86_400_000).toISOString().slice(0, 10)
    return known.get(what) ?? { what, cost_micro: 0, tokens: 0 }
  })
}

function UsageTable({ usage, by, isPriced }: { usage: readonly UsageShown[]; by: string; isPriced: boolean }) {
  const value = (one: UsageShown) => (isPriced ? one.cost_micro : one.tokens)
  const most = Math.max(1, ...usage.map(value))
  const link = (what: string) => (by === 'run' ? <Link className="mono" href={runAddress(what)}>{what.slice(-6)}</Link> : by === 'chat' ? <Link href={chatAddress(what)}>{what}</Link> : what || 'none')
  return (
    <table className="grid-list">
      <thead><tr><th>{by[0]!.toUpperCase() + by.slice(1)}</th><th className="hide-s" style={{ width: '30%' }}>Share</th><th className="right hide-s">Calls</th><th className="right hide-s">In</th><th className="right hide-s">Out</th><th className="right">Tokens</th><th className="right">Cost</th></tr></thead>
      <tbody>{usage.map((one) => (
        <tr key={one.what}><td className="strong">{link(one.what)}</td><td className="hide-s"><div className="meter"><i style={{ width: `${(value(one) / most) * 100}%` }} /></div></td><td className="right num hide-s">{whole(one.calls)}</td><td className="right num hide-s">{whole(one.input)}</td><td className="right num hide-s">{whole(one.output)}</td><td className="right num">{whole(one.tokens)}</td><td className="right num">{total(one.cost_micro, one.tokens)}</td></tr>
      ))}</tbody>
    </table>
  )
}

interface Line {
  scope: ScopeShown
  measure: Measure
  at: MeasureShown
}

/** What is worth a line: a limit, or something spent in a scope that has one by default. */
function linesOf(scopes: readonly ScopeShown[]): Line[] {
  return scopes.flatMap((scope) => MEASURES.map((measure) => ({ scope, measure, at: of(scope, measure) }))
    .filter(({ at }) => at.limit !== null || at.is_own))
}

/** What a new database has: a limit that is the same is not a custom one. */
const BUILT_IN: Record<string, number> = { 'chat/tokens': 500_000, 'run/calls': 300 }
const isCustom = ({ scope, measure, at }: Line) => at.is_own && at.limit !== BUILT_IN[`${scope.scope}/${measure}`]
/** Runs are many, and each has a line: only those near their limit are shown at once. */
const isAside = ({ scope, at }: Line) => scope.kind === 'run' && scope.scope !== 'run' && (at.limit === null || at.spent < at.limit * 0.8)

function Scopes() {
  const query = useLimits()
  const cache = useQueryClient()
  const admin = useRole('admin')
  const [adds, setAdds] = useState(false)
  const [resets, setResets] = useState(false)
  const [all, setAll] = useState(false)
  const read = () => cache.invalidateQueries({ queryKey: keys.limits })
  if (query.isError && !query.data) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (!query.data) return <div className="card"><Skeleton rows={5} /></div>
  const every = linesOf(query.data.scopes)
  const aside = every.filter(isAside).length
  const lines = all ? every : every.filter((line) => !isAside(line))
  const own = [...new Set(every.filter((line) => line.at.is_own && line.scope.scope.includes('/') && line.scope.kind !== 'run').map((line) => line.scope.scope))]
  const resetAll = async () => {
    for (const scope of own) await resetLimits(scope).catch(toastProblem)
    void read()
  }
  return (
    <section className="card" aria-label="Limits" style={{ overflow: 'hidden' }}>
      <header>Limits<span className="dim hide-s" style={{ fontWeight: 450 }}>are stored in the database and apply to every process</span><span className="grow" />
        {admin && <button type="button" className="btn sm" onClick={() => setAdds(true)}><Icon name="plus" size="xs" />Set a limit</button>}
        {admin && own.length > 0 && <button type="button" className="link small" onClick={() => setResets(true)}>Reset all</button>}
      </header>
      <table className="grid-list">
        <thead><tr><th>Scope</th><th className="hide-s">What</th><th className="hide-s">Spent and reserved</th><th className="right">Used</th><th className="right">Limit</th><th><span className="sr">Actions</span></th></tr></thead>
        <tbody>
          {lines.map((line) => <LimitRow key={`${line.scope.scope}/${line.measure}`} line={line} onChanged={() => void read()} />)}
          {query.data.chat_run_calls !== null && <tr><td className="strong">run <span className="dim" style={{ fontWeight: 450 }}>of a chat</span></td><td className="mid hide-s">calls</td><td className="hide-s" /><td className="right num">–</td><td className="right num">{whole(query.data.chat_run_calls)}</td><td className="right dim small">unless a limit is set</td></tr>}
          {aside > 0 && !all && <tr><td colSpan={6}><button type="button" className="link" onClick={() => setAll(true)}>Show {counted(aside, 'limit')} of single runs</button></td></tr>}
        </tbody>
      </table>
      {adds && <AddLimit onClose={() => setAdds(false)} onDone={() => { setAdds(false); void read() }} />}
      {resets && <ConfirmDialog title="Reset all limits?" yes="Reset all" onClose={() => setResets(false)} onYes={() => void resetAll()}>{counted(own.length, 'scope')} will use the default of their kind: {own.slice(0, 5).join(', ')}{own.length > 5 ? ' …' : ''}.</ConfirmDialog>}
    </section>
  )
}

function LimitRow({ line, onChanged }: { line: Line; onChanged: () => void }) {
  const { scope, measure, at } = line
  const custom = isCustom(line)
  const admin = useRole('admin')
  const offline = useOffline()
  const [text, setText] = useState<string | null>(null)
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const isDefault = !scope.scope.includes('/')
  const used = at.spent + at.reserved
  const shown = (value: number) => (measure === 'cost' ? money(value) : whole(value))
  const act = async (work: () => Promise<unknown>) => {
    setBusy(true)
    setError('')
    try {
      await work()
      setText(null)
      onChanged()
    } catch (failed) {
      setError(failed instanceof Problem ? failed.message : String(failed))
    } finally {
      setBusy(false)
    }
  }
  const save = () => act(() => {
    const value = parseAmount(measure, text ?? '')
    if (value === null) throw new Problem(422, 'invalid_input', 'Enter a number, or none.')
    return setLimit(scope.scope, measure, value)
  })
  const field = `limit ${scope.scope} ${measure}`
  return (
    <tr>
      <td><div className="line"><b className="strong cut" style={{ maxWidth: 'min(260px, 34vw)' }} title={scope.scope}>{scope.scope}</b>{custom && <span className="tag custom">custom</span>}<span className="dim small only-s">{measure}</span></div>{error && <p className="says-error" role="alert">{error}</p>}</td>
      <td className="mid hide-s">{measure}</td>
      <td className="hide-s" style={{ width: '22%' }}><Meter spent={at.spent} reserved={at.reserved} limit={at.limit} isWarned={scope.warned.includes(measure)} /></td>
      <td className="right num">{isDefault ? '–' : shown(used)}</td>
      <td className="right num" style={{ width: 130 }}>
        {text === null
          ? admin ? <button type="button" className="num" style={{ padding: '4px 6px', margin: '0 -6px', borderRadius: 6 }} aria-label={`Change the ${field}: ${amount(measure, at.limit)}`} onClick={() => setText(amount(measure, at.limit))}>{amount(measure, at.limit)}</button> : amount(measure, at.limit)
          : <form className={`field ${error ? 'err' : ''}`} onSubmit={(event) => { event.preventDefault(); void save() }}><input className="num right" aria-label={field} aria-invalid={!!error} autoFocus value={text} onFocus={(event) => event.target.select()} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === 'Escape' && (setText(null), setError(''))} /></form>}
      </td>
      <td className="right" style={{ width: 150, whiteSpace: 'nowrap' }}>
        {text !== null ? <button type="button" className="btn sm" disabled={busy || !!offline} title={offline} onClick={() => void save()}>{busy ? 'Saving…' : 'Save'}</button>
          : custom && admin ? <button type="button" className="link small" disabled={busy || !!offline} title={offline} onClick={() => void act(() => resetLimits(scope.scope))}>Reset</button>
          : <span className="dim small hide-s">{isDefault ? `default for every ${scope.kind}` : scope.warned.includes(measure) ? '80 % warned' : ''}</span>}
      </td>
    </tr>
  )
}

function AddLimit({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [kind, setKind] = useState('chat')
  const [name, setName] = useState('')
  const [measure, setMeasure] = useState<Measure>('tokens')
  const [text, setText] = useState('')
  const [error, setError] = useState('')
  const save = async () => {
    const value = parseAmount(measure, text)
    if (value === null || !text.trim()) return setError('Enter a number, or none.')
    try {
      await setLimit(name.trim() ? `${kind}/${name.trim()}` : kind, measure, value)
      onDone()
    } catch (failed) {
      setError(failed instanceof Problem ? failed.message : String(failed))
    }
  }
  return (
    <Dialog label="Set a limit" onClose={onClose}>
      <form className="grid gap-4" onSubmit={(event) => { event.preventDefault(); void save() }}>
        <h2>Set a limit</h2>
        <div className="line">
          <label className="grid gap-1.5" style={{ flex: '0 0 120px' }}><span className="strong">Kind</span><span className="field"><select value={kind} onChange={(event) => setKind(event.target.value)}>{['chat', 'project', 'day', 'run'].map((one) => <option key={one}>{one}</option>)}</select></span></label>
          <label className="grid gap-1.5 grow"><span className="strong">Name <span className="dim">empty: every {kind}</span></span><span className="field"><input value={name} onChange={(event) => setName(event.target.value)} /></span></label>
        </div>
        <div className="line">
          <label className="grid gap-1.5" style={{ flex: '0 0 120px' }}><span className="strong">What</span><span className="field"><select value={measure} onChange={(event) => setMeasure(event.target.value as Measure)}>{MEASURES.map((one) => <option key={one}>{one}</option>)}</select></span></label>
          <label className="grid gap-1.5 grow"><span className="strong">Limit</span><span className={`field ${error ? 'err' : ''}`}><input className="num right" inputMode="decimal" value={text} aria-invalid={!!error} placeholder={measure === 'cost' ? '$5.00' : '500,000'} onChange={(event) => setText(event.target.value)} /></span></label>
        </div>
        {error && <p className="says-error" role="alert">{error}</p>}
        <div className="line justify-end"><button type="button" className="btn" onClick={onClose}>Back</button><button type="submit" className="btn ink">Save limit</button></div>
      </form>
    </Dialog>
  )
}
