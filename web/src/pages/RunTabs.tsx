/** The other tabs of a run: everything said, its values, its log, what it left, what it cost, and its relatives. */

import { useQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useMemo, useRef, useState } from 'react'
import { Link } from 'wouter'
import { artifactAddress, listArtifacts, type EventShown } from '../api/client'
import type { RunPage } from '../api/types'
import { Icon } from '../parts/Icon'
import { JsonTree } from '../parts/JsonTree'
import { CallMessage } from '../parts/Message'
import { ErrorBox, Skeleton } from '../parts/States'
import { Status, StatusGlyph } from '../parts/Status'
import { factsOf } from '../parts/StepPanel'
import { Age, TimeOfDay } from '../parts/Time'
import { runAddress, useParams } from '../state/address'
import { keys } from '../state/keys'
import { useEvents, useMessages } from '../state/messages'
import { isElsewhere, useReceipts } from '../state/files'
import { useRole } from '../state/me'
import { span } from '../words/durations'
import { bytes, cost, costOf, counted, money, whole } from '../words/money'
import { called } from '../words/names'

export default function RunTabs({ page, tab }: { page: RunPage; tab: string }) {
  switch (tab) {
    case 'messages':
      return <Messages page={page} />
    case 'context':
      return <Context page={page} />
    case 'events':
      return <Events page={page} />
    case 'files':
      return <Files page={page} />
    case 'receipts':
      return <Receipts page={page} />
    case 'cost':
      return <Cost page={page} />
    default:
      return <Lineage page={page} />
  }
}

function Messages({ page }: { page: RunPage }) {
  const query = useMessages(page.id)
  const box = useRef<HTMLDivElement>(null)
  const messages = query.data?.messages ?? []
  const calls = useMemo(() => page.timeline.filter((row) => row.kind === 'call'), [page.timeline])
  const rows = useVirtualizer({
    count: messages.length, getScrollElement: () => box.current?.closest('.body') ?? null, estimateSize: () => 140, overscan: 4, gap: 18,
    getItemKey: (at) => messages[at]?.id ?? at,
  })
  if (query.isError && !query.data) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (query.isPending) return <Skeleton />
  if (!messages.length) return <div className="none"><p>No model output in this run.</p></div>
  return (
    <div className="pad" style={{ paddingTop: 20 }} ref={box}>
      <div style={{ height: rows.getTotalSize(), position: 'relative' }}>
        {rows.getVirtualItems().map((item) => {
          const said = messages[item.index]!
          const shown = said.state === 'streaming' && page.status !== 'running' ? { ...said, state: 'interrupted' } : said
          return (
            <div key={item.key} ref={rows.measureElement} data-index={item.index} style={{ position: 'absolute', insetInline: 0, top: 0, maxWidth: 760, transform: `translateY(${item.start}px)` }}>
              <CallMessage said={shown} title={[said.step || said.role, said.call].filter(Boolean).join(' · ')} facts={factsOf(calls, said.step, said.call, said.number)} tools={calls.filter((call) => call.key.startsWith(`${said.step}:${said.call}.t`))} />
            </div>
          )
        })}
      </div>
    </div>
  )
}

function Context({ page }: { page: RunPage }) {
  const [text, setText] = useState('')
  const found = Object.entries(page.context).filter(([name]) => name.toLowerCase().includes(text.toLowerCase()))
  return (
    <div className="pad" style={{ paddingTop: 16 }}>
      <label className="field mb-4" style={{ maxWidth: 320 }}><Icon name="search" size="sm" /><input aria-label="Filter values" placeholder="Filter values" value={text} onChange={(event) => setText(event.target.value)} /></label>
      <div className="tree">{found.map(([name, value]) => <JsonTree key={name} name={name} value={value} open={false} />)}</div>
    </div>
  )
}

const HIDDEN = new Set(['seq', 'kind', 'at', 'token', 'run'])

function Events({ page }: { page: RunPage }) {
  const query = useEvents(page.id)
  const [text, setText] = useState('')
  const [open, setOpen] = useState<number | null>(null)
  const box = useRef<HTMLDivElement>(null)
  const events = useMemo(() => {
    const all = query.data ?? []
    return text ? all.filter((event) => `${String(event.kind)} ${String(event.step ?? '')}`.toLowerCase().includes(text.toLowerCase())) : all
  }, [query.data, text])
  const rows = useVirtualizer({
    count: events.length, getScrollElement: () => box.current?.closest('.body') ?? null, estimateSize: () => 33, overscan: 10,
    getItemKey: (at) => Number(events[at]?.seq ?? at), scrollMargin: 60,
  })
  if (query.isError && !query.data) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (query.isPending) return <Skeleton height="33px" />
  return (
    <div ref={box}>
      <div style={{ padding: '14px 24px', height: 60 }}><label className="field" style={{ maxWidth: 320 }}><Icon name="search" size="sm" /><input aria-label="Filter events" placeholder="Filter by event or step" value={text} onChange={(event) => setText(event.target.value)} /></label></div>
      <div style={{ height: rows.getTotalSize(), position: 'relative' }}>
        {rows.getVirtualItems().map((item) => {
          const event = events[item.index]!
          const seq = Number(event.seq)
          return (
            <div key={item.key} ref={rows.measureElement} data-index={item.index} style={{ position: 'absolute', insetInline: 0, top: 0, transform: `translateY(${item.start - 60}px)` }}>
              <Event event={event} isOpen={open === seq} onToggle={() => setOpen(open === seq ? null : seq)} />
            </div>
          )
        })}
      </div>
    </div>
  )
}

function Event({ event, isOpen, onToggle }: { event: EventShown; isOpen: boolean; onToggle: () => void }) {
  const fields = Object.fromEntries(Object.entries(event).filter(([name]) => !HIDDEN.has(name)))
  const brief = Object.entries(fields).filter(([, value]) => typeof value !== 'object').map(([name, value]) => `${name} ${String(value)}`).join(' · ').slice(0, 200)
  return (
    <div style={{ borderBottom: '1px solid var(--line)' }}>
      <button type="button" className="line w-full trow" style={{ minHeight: 32, padding: '0 24px', border: 0, textAlign: 'left' }} aria-expanded={isOpen} onClick={onToggle}>
        <span className="mono dim right" style={{ width: 40 }}>{String(event.seq)}</span>
        <span className="small dim hide-s" style={{ width: 60 }}><TimeOfDay at={String(event.at)} /></span>
        <span className="strong" style={{ minWidth: 130 }}>{String(event.kind)}</span>
        <span className="mono dim cut grow">{brief}</span>
      </button>
      {isOpen && <div className="tree" style={{ padding: '4px 24px 14px 72px' }}><JsonTree value={fields} /></div>}
    </div>
  )
}

function Files({ page }: { page: RunPage }) {
  const query = useQuery({ queryKey: [...keys.artifacts(page.id), page.steps_finished], queryFn: () => listArtifacts(page.id) })
  if (query.isError) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (query.isPending) return <Skeleton />
  const artifacts = query.data.artifacts
  return (
    <>
      {page.workspace && (
        <div className="none" style={{ paddingBottom: 12 }}>
          <div className="line"><Icon name="branch" size="sm" /><span>The steps change a git repository on the server’s machine.</span></div>
          <div className="code">{page.workspace.repository}{page.workspace.branch ? `\nbranch ${page.workspace.branch}` : ''}{'\n'}commit {page.workspace.commit}</div>
        </div>
      )}
      {artifacts.length ? (
        <table className="grid-list"><thead><tr><th>Name</th><th>Step</th><th className="right">Size</th><th className="right">Stored</th></tr></thead>
          <tbody>{artifacts.map((one) => (
            <tr key={one.id}><td><a className="line strong" href={artifactAddress(page.id, one.id)}><Icon name="file" size="sm" />{one.name}</a></td><td className="mid">{one.step}</td><td className="right num">{bytes(one.size_bytes)}</td><td className="right dim"><Age at={one.stored_at} /></td></tr>
          ))}</tbody></table>
      ) : !page.workspace && <div className="none"><p>The steps of this run stored no files.</p></div>}
    </>
  )
}

/** The receipts as they are on disk, and what disagrees with the log. Whoever may not read files sees the steps. */
function Receipts({ page }: { page: RunPage }) {
  const [, change] = useParams()
  const may = useRole('operator')
  const query = useReceipts(page)
  if (query.isError && !isElsewhere(query.error)) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (query.isLoading) return <Skeleton />
  const files = query.data?.receipts
  const found = query.data?.found ?? []
  const rows = files?.map((one) => ({ step: one.step_id, status: one.status, attempts: one.attempts.length, seconds: one.duration_ms / 1000, at: one.completed_at, file: one.file }))
    ?? page.steps.filter((one) => one.finished_at).map((one) => ({ step: one.step, status: one.status, attempts: one.attempts, seconds: null, at: one.finished_at!, file: '' }))
  return (
    <>
      {isElsewhere(query.error) && <p className="mid" style={{ padding: '14px 24px 6px' }}>{query.error.message}</p>}
      {!may && rows.length > 0 && <p className="mid" style={{ padding: '14px 24px 6px' }}>Only an operator can read the files.</p>}
      {found.map((one) => (
        <div key={one.file} className="line" role="alert" style={{ padding: '10px 24px 0', alignItems: 'flex-start' }}>
          <StatusGlyph of="interrupted" /><span className="grow" style={{ overflowWrap: 'anywhere' }}>{one.says} <span className="dim">Only receipts that match the log are trusted.</span></span>
        </div>
      ))}
      {rows.length ? (
        <table className="grid-list"><thead><tr><th>Step</th><th className="hide-s">File</th><th>Outcome</th><th className="right hide-s">Attempts</th><th className="right hide-s">Took</th><th className="right">Finished</th><th><span className="sr">Receipt</span></th></tr></thead>
          <tbody>{rows.map((one) => (
            <tr key={one.step}>
              <td className="strong" style={{ overflowWrap: 'anywhere' }}>{one.step}</td><td className="mono dim hide-s" style={{ overflowWrap: 'anywhere' }}>{one.file || '–'}</td>
              <td><span className="line"><StatusGlyph of={one.status} /><span className="mid">{one.status.replaceAll('_', ' ')}</span></span></td><td className="right num hide-s">{one.attempts || '–'}</td>
              <td className="right num hide-s">{one.seconds === null ? '–' : span(one.seconds)}</td><td className="right dim"><Age at={one.at} /></td>
              <td className="right"><button type="button" className="link small" onClick={() => change({ tab: null, step: one.step, panel: 'receipt' }, true)}>Receipt</button></td>
            </tr>
          ))}</tbody></table>
      ) : !found.length && <div className="none"><p>A finished step leaves a receipt. {page.steps_finished ? 'There are none on the server’s machine.' : 'No step has finished.'}</p></div>}
    </>
  )
}

function Cost({ page }: { page: RunPage }) {
  const steps = page.timeline.filter((row) => row.kind === 'step' && (row.tokens > 0 || row.cost))
  const most = Math.max(1, ...steps.map((row) => row.tokens))
  const calls = page.timeline.filter((row) => row.kind === 'call' && row.tokens > 0)
  const of = (step: string | null) => calls.filter((row) => row.step === step)
  const isOver = page.status === 'completed' || page.status === 'cancelled'
  const when = page.banner ? 'if it is resumed now' : 'if it stopped now'
  return (
    <div className="pad grid gap-4" style={{ paddingTop: 16 }}>
      <div className="kp">
        <div className="card"><span className="h">Cost</span><b>{costOf(calls, page.cost)}</b><div className="line">{whole(page.tokens)} tokens</div></div>
        <div className="card"><span className="h">{page.stops.length ? 'Kept through stops' : 'Kept if it stops'}</span><b>{page.kept.cost ? money(page.kept.cost) : counted(page.kept.answers, 'answer')}</b><div className="line">{page.kept.cost ? `${counted(page.kept.answers, 'answer')}, ` : 'and '}{counted(page.kept.steps, 'step')}</div></div>
        <div className="card"><span className="h">Requested again</span><b>{isOver ? '–' : whole(page.kept.again)}</b><div className="line">{isOver ? 'the run has ended' : `${page.kept.again === 1 ? 'answer' : 'answers'}, ${when}`}</div></div>
        <div className="card"><span className="h">Stops</span><b>{whole(page.stops.length)}</b><div className="line">{page.claims > 1 ? `claimed ${whole(page.claims)} times` : 'claimed once'}</div></div>
      </div>
      {steps.length ? (
        <div className="card" style={{ overflow: 'hidden' }}><table className="grid-list"><thead><tr><th>Step</th><th className="hide-s" style={{ width: '34%' }}>Share</th><th className="right hide-s">Answers</th><th className="right">Tokens</th><th className="right">Cost</th></tr></thead>
          <tbody>{[...steps].sort((a, b) => b.tokens - a.tokens).map((row) => (
            <tr key={row.key}><td className="strong" style={{ overflowWrap: 'anywhere' }}>{row.step}</td><td className="hide-s"><div className="meter"><i style={{ width: `${(row.tokens / most) * 100}%` }} /></div></td><td className="right num hide-s">{of(row.step).length}</td><td className="right num">{whole(row.tokens)}</td><td className="right num">{cost(row.cost)}</td></tr>
          ))}</tbody></table></div>
      ) : <p className="mid">This run sent no requests to a model.</p>}
    </div>
  )
}

function Lineage({ page }: { page: RunPage }) {
  const rows: { id: string; name: string; status?: string; says: string }[] = [
    ...(page.managed_by ? [{ id: page.managed_by.run, name: page.managed_by.run.slice(-6), says: `manages this run, in ${page.managed_by.step}` }] : []),
    ...(page.restart_of ? [{ id: page.restart_of, name: page.restart_of.slice(-6), says: 'continues in this run' }] : []),
    ...(page.parent ? [{ id: page.parent.run, name: page.parent.run.slice(-6), says: `original; this run was forked at checkpoint ${page.parent.seq}` }] : []),
  ]
  const after = [
    ...page.forks.map((one) => ({ id: one.id, name: called(one), status: one.status, says: `fork at checkpoint ${one.seq}` })),
    ...page.children.map((one) => ({ id: one.id, name: called(one), status: one.status, says: `managed by ${one.step}` })),
  ]
  const line = (one: (typeof rows)[number]) => (
    <li key={one.id}><Link href={runAddress(one.id)} className="line trow" style={{ padding: '0 16px', borderRadius: 8 }}>
      <Icon name="fork" size="sm" /><span className="mono strong">{one.name}</span>{one.status && <Status status={one.status} />}<span className="mid grow">{one.says}</span><Icon name="next" size="xs" />
    </Link></li>
  )
  return (
    <div className="pad" style={{ paddingTop: 16, maxWidth: 760 }}>
      <ol className="grid">
        {rows.map(line)}
        <li className="line trow sel" style={{ padding: '0 16px', borderRadius: 8, cursor: 'default' }}><Icon name="target" size="sm" /><span className="mono strong">{called(page)}</span><Status status={page.status} /><span className="mid">this run</span></li>
        <li><ol style={{ paddingLeft: 28 }}>{after.map(line)}</ol></li>
      </ol>
      {!rows.length && !after.length && <p className="mid" style={{ padding: '16px' }}>This run has no forks. A fork keeps the steps before a checkpoint and continues from there, with changed values if you like.</p>}
    </div>
  )
}
