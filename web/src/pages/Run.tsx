/** What happened, why did it stop, what did it cost? */

import { useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { cancelWorkflow, drawRun, pauseRun, Problem, showRun } from '../api/client'
import type { NodeBox, RunPage } from '../api/types'
import { ActionButton } from '../parts/ActionButton'
import { BannerSlot, Resume } from '../parts/BannerSlot'
import { ConfirmDialog } from '../parts/Dialog'
import { ForkDrawer } from '../parts/ForkDrawer'
import { asksYesNo, GateCard, useDecision, type Question } from '../parts/GateCard'
import { Graph } from '../parts/Graph'
import { Icon, type IconName } from '../parts/Icon'
import { Menu } from '../parts/Menu'
import { Title } from '../parts/Shell'
import { Empty, ErrorBox, Gone, Skeleton } from '../parts/States'
import { StatusPill } from '../parts/Status'
import { StepPanel } from '../parts/StepPanel'
import { Stops } from '../parts/Stops'
import { Timeline, useScroller, useSpent } from '../parts/Timeline'
import { useAct } from '../parts/ActionButton'
import { chatAddress, runAddress, useParams } from '../state/address'
import { applyTimeline } from '../state/apply'
import { useKeys } from '../state/keyboard'
import { keys } from '../state/keys'
import { useFollow, useOffline } from '../state/live'
import { useMessages } from '../state/messages'
import { useRole } from '../state/me'
import { span } from '../words/durations'
import { costOf, whole } from '../words/money'
import { called } from '../words/names'

const RunTabs = lazy(() => import('./RunTabs'))

const TABS = ['steps', 'messages', 'context', 'events', 'files', 'receipts', 'cost', 'lineage'] as const
type Tab = (typeof TABS)[number]
const isOver = (page: RunPage) => page.status === 'completed' || page.status === 'cancelled'

export default function Run({ id }: { id: string }) {
  const query = useQuery({ queryKey: keys.run(id), queryFn: ({ signal }) => showRun(id, signal) })
  const isGone = query.error instanceof Problem && query.error.code === 'run_not_found'
  if (query.isError && query.data && isGone) return <><Title>Run</Title><Gone /><AllRuns /></>
  if (query.isError && !query.data) return <><Title>Run</Title><ErrorBox error={query.error} {...(isGone ? {} : { again: () => void query.refetch() })} /><AllRuns /></>
  if (!query.data) return <><Title>Run</Title><Skeleton rows={14} /></>
  return <Loaded page={query.data} />
}

const AllRuns = () => <p className="px-6"><Link className="link" href="/runs">All runs</Link></p>

function Loaded({ page }: { page: RunPage }) {
  const [params, change] = useParams()
  const [, go] = useLocation()
  const said = params.get('tab') as Tab | null
  const tab: Tab = said && TABS.includes(said) ? said : 'steps'
  const step = params.get('step')
  const fork = params.get('fork')
  const gate = page.status === 'waiting' ? page.gates.find((one) => one.decided === null && !one.expired) : undefined
  const question: Question | undefined = useMemo(() => gate && { ...gate, run: page.id }, [gate, page.id])
  // Only whether they were read: each piece that comes would draw the whole page again.
  const { isSuccess: areRead } = useMessages(page.id, tab === 'messages' || (tab === 'steps' && !!step))
  useFollow({ run: page.id, events: tab === 'events', ...(areRead ? { of: page.id } : {}) })

  const may = useRole('operator')
  const started = page.timeline.filter((row) => row.kind === 'step' && row.step)
  const move = (by: number) => {
    const at = started.findIndex((row) => row.step === step)
    const to = started[at < 0 ? (by > 0 ? 0 : started.length - 1) : at + by]
    if (to) change({ step: to.step, tab: null, panel: null })
  }
  useKeys({
    '[': () => move(-1),
    ']': () => move(1),
    f: () => may && change({ fork: 'choose' }, true),
    r: () => document.querySelector<HTMLButtonElement>('#resume-slot button')?.click(),
    Escape: () => step && change({ step: null, panel: null }),
  })
  // On a phone the tabs are wider than the screen.
  const tabs = useRef<HTMLDivElement>(null)
  useEffect(() => {
    tabs.current?.querySelector('.on')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [tab])
  const pick = (one: string | null) => change({ step: one, panel: null })
  return (
    <>
      <Title>{`${page.pipeline} ${called(page)}`}</Title>
      <header className="runtop">
        <div className="line" style={{ minHeight: 34, gap: 10 }}>
          <Link className="crumb hide-s" href="/runs">Runs</Link><span className="dim hide-s">/</span>
          <h1 className="cut" style={{ fontSize: 17, lineHeight: '24px', fontWeight: 610, letterSpacing: '-.015em' }}>{page.pipeline}</h1>
          <span className="mono dim cut" title={page.id}>{called(page)}</span>
          <span aria-live="polite"><StatusPill status={page.status} inDoubt={!!page.step_in_doubt} /></span>
          {page.is_dismissed && <span className="tag">dismissed</span>}
          <span className="grow" />
          <HeaderActions page={page} question={question} onFork={() => change({ fork: 'choose' }, true)} />
        </div>
        <Meta page={page} />
      </header>
      {question ? <div className="slot"><GateCard gate={question} /></div>
        : page.banner && <div className="slot"><BannerSlot banner={page.banner} run={page} startOpen={params.get('limits') === 'open'} /></div>}
      <div className="tabs" role="tablist" aria-label="Run" ref={tabs}>
        {TABS.map((one) => (
          <button key={one} type="button" role="tab" aria-selected={one === tab} className={one === tab ? 'on' : ''} onClick={() => change({ tab: one === 'steps' ? null : one })}>
            {one[0]!.toUpperCase() + one.slice(1)}{count(page, one)}
          </button>
        ))}
      </div>
      {tab === 'steps' ? <Steps page={page} step={step} pick={pick} /> : (
        <div className="body" tabIndex={0} role="tabpanel" aria-label={tab}><Suspense fallback={<Skeleton />}><RunTabs page={page} tab={tab} /></Suspense></div>
      )}
      {fork && may && (
        <ForkDrawer page={page} at={/^\d+$/.test(fork) ? Number(fork) : null} onPick={(seq) => change({ fork: String(seq) })} onClose={() => change({ fork: null })} />
      )}
      <Redirected page={page} go={go} />
    </>
  )
}

/** A run that continues as another says so once. */
function Redirected({ page, go }: { page: RunPage; go: (to: string) => void }) {
  if (!page.restarted_as) return null
  const to = page.restarted_as
  return <div className="offline"><span>This run continues as another run.</span><button type="button" className="btn sm" onClick={() => go(runAddress(to))}>Open it</button></div>
}

function count(page: RunPage, tab: Tab): ReactNode {
  const is = {
    steps: 0, messages: 0, context: Object.keys(page.context).length, events: page.head, files: 0,
    receipts: page.steps_finished, cost: 0, lineage: page.forks.length + page.children.length + (page.parent ? 1 : 0),
  }[tab]
  return is > 0 && <small>{whole(is)}</small>
}

function HeaderActions({ page, question, onFork }: { page: RunPage; question: Question | undefined; onFork: () => void }) {
  const may = useRole('operator')
  const offline = useOffline()
  const [asks, setAsks] = useState(false)
  const isOpen = !isOver(page) && !(page.status === 'failed' && !page.recoverable)
  const cancel = useAct({ run: page.id, post: (key) => cancelWorkflow(page.id, '', key) })
  const pause = useAct({ run: page.id, post: () => pauseRun(page.id) })
  const pauseNow = useAct({ run: page.id, post: () => pauseRun(page.id, 'now') })
  const canPause = page.status === 'running' || page.status === 'queued'
  return (
    <>
      {question && asksYesNo(question) && <span className="line hide-s"><Verdicts gate={question} /></span>}
      {page.recoverable && !page.step_in_doubt && <span id="resume-slot" className={page.banner ? 'line hide-s' : 'line'}><Resume run={page} /></span>}
      {canPause && (
        <span className="hide-s">
          {page.pending.pause_after
            ? <span className="tag">pauses after the {page.pending.pause_after}</span>
            : <ActionButton icon="pause" busy="Pausing…" act={{ run: page.id, post: () => pauseRun(page.id) }}>Pause</ActionButton>}
        </span>
      )}
      {may && <button type="button" className="btn hide-s" disabled={!!offline} title={offline} onClick={onFork}><Icon name="fork" size="sm" />Fork…</button>}
      {may && isOpen && <button type="button" className="btn danger hide-s" disabled={cancel.isPending || !!offline} title={offline} onClick={() => setAsks(true)}>{cancel.isPending || page.pending.cancel_by ? 'Cancelling…' : 'Cancel…'}</button>}
      <Menu className="btn icon ghost" label="More" right button={<Icon name="more" />} choices={[
        { label: 'Copy the id', act: () => void navigator.clipboard?.writeText(page.id) },
        ...(may && canPause && !offline ? [{ label: 'Pause after the step', act: () => pause.mutate() }, { label: 'Pause now', act: () => pauseNow.mutate() }] : []),
        ...(may ? [{ label: 'Fork…', act: onFork }] : []),
        ...(may && isOpen ? [{ label: 'Cancel…', danger: true, act: () => setAsks(true) }] : []),
      ]} />
      {asks && (
        <ConfirmDialog title={`Cancel ${page.pipeline} ${called(page)}?`} yes="Cancel run" onClose={() => setAsks(false)} onYes={() => cancel.mutate()}>
          It ends for good and cannot be resumed. {whole(page.steps_finished)} finished steps can still be read, and forked.
        </ConfirmDialog>
      )}
    </>
  )
}

function Verdicts({ gate }: { gate: Question }) {
  const may = useRole('approver')
  const offline = useOffline()
  const { mutate, isPending } = useDecision(gate)
  if (!may) return null
  return (
    <>
      <button type="button" className="btn" disabled={isPending || !!offline} title={offline} onClick={() => mutate({ verdict: 'reject' })}><Icon name="close" size="sm" />Reject</button>
      <button type="button" className="btn ink" disabled={isPending || !!offline} title={offline} onClick={() => mutate({ verdict: 'approve' })}><Icon name="check" size="sm" />Approve</button>
    </>
  )
}

const callsOf = (page: RunPage) => page.timeline.filter((row) => row.kind === 'call')

function Meta({ page }: { page: RunPage }) {
  const spent = useSpent(page)
  const took = (milliseconds: number, word: string) => (milliseconds >= 500 ? `, ${span(rounded(milliseconds / 1000))} ${word}` : '')
  const item = (icon: IconName, text: ReactNode, hide = false) => <span className={hide ? 'hide-s' : ''}><Icon name={icon} size="sm" /><span className="cut">{text}</span></span>
  return (
    <div className="meta num">
      {!page.banner && page.status !== 'waiting' && <span className="now" title={page.now}>{page.now}</span>}
      {page.chat && !page.chat.startsWith('run/') && item('chat', <Link href={chatAddress(page.chat)}>{page.chat}</Link>)}
      {item('pipeline', `${page.pipeline}${page.pipeline_version ? ` v${page.pipeline_version}` : ''}`)}
      {spent && item('clock', `${span(rounded(spent.work / 1000))} working${took(spent.wait, 'waiting')}${took(spent.stop, 'stopped')}`)}
      {page.tokens > 0 && item('gauge', `${whole(page.tokens)} tokens · ${costOf(callsOf(page), page.cost)}`)}
      {(page.holder || !isOver(page)) && item('worker', page.holder ?? 'no process holds it', true)}
      {page.workspace?.branch && item('branch', <span className="mono" title={page.workspace.branch}>{page.workspace.branch.length > 20 ? `${page.workspace.branch.slice(0, 16)}…` : page.workspace.branch}</span>, true)}
      {page.simulated !== null && item('play', 'simulated')}
    </div>
  )
}

const rounded = (seconds: number) => (seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds))

function Steps({ page, step, pick }: { page: RunPage; step: string | null; pick: (step: string | null) => void }) {
  const [narrow, setNarrow] = useState<'graph' | 'timeline' | 'step'>('timeline')
  const [isTrue, setTrue] = useState(false)
  const scroller = useScroller()
  const graph = useQuery({
    // Where everything stands does not change with an event; which edges were taken is read now and then, and
    // again at each stop, also at a second one with the same status.
    queryKey: [...keys.graph(page.id), page.status, page.status === 'running' ? 0 : page.head, page.pipeline_hash], refetchInterval: page.status === 'running' ? 5000 : false, queryFn: ({ signal }) => drawRun(page.id, signal),
    placeholderData: (before) => before, staleTime: Infinity,
  })
  const drawn = graph.data?.geometry
  const geometry = useMemo(() => drawn && applyTimeline(drawn, page.timeline), [drawn, page.timeline])
  const stoppedAt = page.banner?.step
  const current = geometry?.nodes.find((node) => step ? node.step === step : node.step === stoppedAt)?.id
    ?? geometry?.nodes.find((node) => node.state === 'running' || node.state === 'waiting')?.id ?? page.next ?? null
  const nodes = useMemo(() => {
    const ids = (is: (node: NodeBox) => boolean) => new Set(geometry?.nodes.filter(is).map((node) => node.id))
    return { gates: ids((node) => node.shape === 'hexagon'), flows: ids((node) => node.kind.startsWith('flow:')) }
  }, [geometry])
  const done = page.timeline.filter((row) => row.kind === 'step' && row.state === 'finished').length
  const isStopped = !!page.banner
  useEffect(() => {
    if (step) setNarrow('step')
  }, [step])
  const isShown = (one: typeof narrow) => (narrow === one ? 'shown' : '')
  return (
    <>
      <div className="segm seg" role="group" aria-label="View">
        {(['graph', 'timeline', 'step'] as const).map((one) => <button key={one} type="button" className={narrow === one ? 'on' : ''} aria-pressed={narrow === one} onClick={() => setNarrow(one)}>{one[0]!.toUpperCase() + one.slice(1)}</button>)}
      </div>
      <div className={`work ${step ? '' : 'alone'}`}>
        <section className={`graph ${isShown('graph')}`} aria-label="Graph">
          <div className="ph">Graph<span className="dim num">{done} of {Math.max(page.steps_planned, done)} on this path</span><span className="grow" />
            {!isOver(page) && <button type="button" className="btn sm ghost" onClick={() => document.dispatchEvent(new Event('onward:follow'))}><Icon name="target" size="xs" />{isStopped ? 'Show the stop' : 'Follow'}</button>}
          </div>
          {geometry ? <Graph geometry={geometry} picked={step} current={current} onPick={pick} />
            : graph.isError ? <ErrorBox error={graph.error} again={() => void graph.refetch()} /> : <Skeleton rows={5} />}
        </section>
        <section className={isShown('timeline')} aria-label="Timeline and stops">
          <div className="ph">Timeline<span className="grow" />
            <div className="seg" role="group" aria-label="Scale" style={{ height: 32 }}>
              <button type="button" className={isTrue ? '' : 'on'} aria-pressed={!isTrue} onClick={() => setTrue(false)}>Gaps short</button>
              <button type="button" className={isTrue ? 'on' : ''} aria-pressed={isTrue} onClick={() => setTrue(true)}>True scale</button>
            </div>
          </div>
          <div className="body" ref={scroller} tabIndex={0} role="region" aria-label="Timeline">
            {page.timeline.length ? <Timeline page={page} picked={step} onPick={pick} isTrue={isTrue} scroller={scroller} nodes={nodes} /> : <Empty><p>{page.now}</p></Empty>}
            <Stops stops={page.stops} kept={page.kept} />
          </div>
        </section>
        {(step || narrow === 'step') && (
          <section className={`det ${isShown('step')}`} aria-label="Step">
            {step ? <StepPanel page={page} step={step} onClose={() => { pick(null); setNarrow('timeline') }} /> : <div className="none"><p>Choose a step in the timeline or the graph.</p></div>}
          </section>
        )}
      </div>
    </>
  )
}
