/** Runs as rows of fixed height, of which only those on screen are in the document. */

import { useVirtualizer } from '@tanstack/react-virtual'
import { memo, useEffect, useMemo, useSyncExternalStore, type ReactNode, type RefObject } from 'react'
import { Link, useLocation } from 'wouter'
import { resumeWorkflow } from '../api/client'
import type { GateListed, RunListed } from '../api/types'
import { gateAddress, runAddress } from '../state/address'
import { useKeys } from '../state/keyboard'
import { useRole } from '../state/me'
import { short, total } from '../words/money'
import { called } from '../words/names'
import { ActionButton } from './ActionButton'
import { useGates } from './Shell'
import { Status } from './Status'
import { StepTicks } from './StepTicks'
import { Age, Countdown } from './Time'

const narrow = matchMedia('(max-width: 720px)')
const coarse = matchMedia('(pointer: coarse)')
export const useNarrow = () => useSyncExternalStore(
  (reader) => (narrow.addEventListener('change', reader), () => narrow.removeEventListener('change', reader)),
  () => narrow.matches,
)

export function RunTable({ runs, at, setAt, selected, onSelect, onSeen, more, scroller }: {
  runs: readonly RunListed[]
  at: number
  setAt: (at: number) => void
  selected: ReadonlySet<string>
  onSelect: (id: string, on: boolean) => void
  onSeen: (first: number, last: number) => void
  more: ReactNode
  scroller: RefObject<HTMLDivElement | null>
}) {
  const isNarrow = useNarrow()
  const [, go] = useLocation()
  const height = isNarrow ? 124 : coarse.matches ? 60 : 44
  const rows = useVirtualizer({
    count: runs.length, estimateSize: () => height, getScrollElement: () => scroller.current, overscan: 8,
    getItemKey: (index) => runs[index]?.id ?? index,
  })
  useEffect(() => rows.measure(), [height, rows])
  const items = rows.getVirtualItems()
  const first = items[0]?.index ?? 0
  const last = items.at(-1)?.index ?? 0
  useEffect(() => onSeen(first, last), [first, last, onSeen])

  const move = (to: number) => {
    if (to < 0 || to >= runs.length) return
    setAt(to)
    rows.scrollToIndex(to)
    // Enter opens the row from now on, and not the button that had the focus.
    scroller.current?.focus({ preventScroll: true })
  }
  const here = runs[at]
  // Read once: a row that comes into view should cost as little as it can.
  const mayAnswer = useRole('approver')
  const mayOperate = useRole('operator')
  const gates = useGates().data?.gates
  const asked = useMemo(() => new Map(gates?.map((gate) => [gate.run, gate])), [gates])
  useKeys({
    j: () => move(at + 1),
    k: () => move(at < 0 ? 0 : at - 1),
    ArrowDown: () => move(at + 1),
    ArrowUp: () => move(at < 0 ? 0 : at - 1),
    Enter: () => here && go(runAddress(here.id)),
    x: () => here && onSelect(here.id, !selected.has(here.id)),
    r: () => document.getElementById(`act-${here?.id}`)?.click(),
  })
  return (
    <div className="body relative" ref={scroller} tabIndex={0} role="region" aria-label="List of runs">
      <div className="runs" role="table" aria-label="Runs" aria-rowcount={runs.length}>
        <div role="rowgroup">
          <div className="tr thead" role="row">
            <span role="columnheader"><span className="sr">Select</span></span>
            <span role="columnheader">Status</span>
            <span role="columnheader">Run</span>
            <span role="columnheader">What it does, or why it stopped</span>
            <span role="columnheader">Steps</span>
            <span role="columnheader" className="c-chat">Chat</span>
            <span role="columnheader" className="right">Tokens, cost</span>
            <span role="columnheader" className="right">Changed</span>
            <span role="columnheader"><span className="sr">Action</span></span>
          </div>
        </div>
        <div role="rowgroup" style={{ height: rows.getTotalSize(), position: 'relative' }}>
          {items.map((item) => {
            const run = runs[item.index]!
            return (
              <div key={item.key} ref={isNarrow ? rows.measureElement : undefined} data-index={item.index}
                style={{ position: 'absolute', top: 0, left: 0, right: 0, transform: `translateY(${item.start}px)` }}>
                <Row run={run} gate={run.status === 'waiting' ? asked.get(run.id) : undefined} index={item.index} isAt={item.index === at} isSelected={selected.has(run.id)} onSelect={onSelect} mayAnswer={mayAnswer} mayOperate={mayOperate} />
              </div>
            )
          })}
        </div>
      </div>
      {more}
    </div>
  )
}

const Row = memo(function Row({ run, gate, index, isAt, isSelected, onSelect, mayAnswer, mayOperate }: {
  run: RunListed
  gate: GateListed | undefined
  index: number
  isAt: boolean
  isSelected: boolean
  onSelect: (id: string, on: boolean) => void
  mayAnswer: boolean
  mayOperate: boolean
}) {
  const [, go] = useLocation()
  const over = run.status === 'completed' || run.status === 'cancelled'
  return (
    <div
      role="row" aria-rowindex={index + 1} className={`tr trow ${isSelected ? 'sel' : ''} ${isAt ? 'at sel' : ''}`}
      onClick={(event) => !(event.target as HTMLElement).closest('a,button,input') && go(runAddress(run.id))}
    >
      <span role="cell" className="c-box"><input type="checkbox" className="box" aria-label={`Select ${called(run)}`} checked={isSelected} onChange={(event) => onSelect(run.id, event.target.checked)} /></span>
      <span role="cell" className="c-status"><Status status={run.status} inDoubt={!!run.step_in_doubt} /></span>
      <span role="cell" className="c-run line">
        <Link href={runAddress(run.id)} className="line"><span className="mono mid cut" title={run.id}>{called(run)}</span><span className="strong cut">{run.pipeline}</span></Link>
        <span className="dim small cut only-s">{run.chat.startsWith('run/') ? '' : `· ${run.chat}`}</span>
        {run.is_dismissed && <span className="tag">dismissed</span>}
      </span>
      <span role="cell" className={`c-why ${over ? 'mid' : ''}`}><Why run={run} gate={gate} /></span>
      <span role="cell" className="c-steps line"><StepTicks ticks={run.ticks} status={run.status} finished={run.steps_finished} planned={run.steps_planned} over={over} />{run.tokens > 0 && <span className="only-s small dim num">· {total(run.cost, run.tokens)}</span>}</span>
      <span role="cell" className="c-chat cut mid">{!run.chat || run.chat.startsWith('run/') ? '–' : run.chat}</span>
      <span role="cell" className="c-cost right num"><span className="dim small">{run.tokens ? short(run.tokens) : '–'}</span>{run.tokens > 0 && <span className="ml-1.5">{total(run.cost, run.tokens)}</span>}</span>
      <span role="cell" className="c-changed right dim"><Age at={run.updated_at} /></span>
      <span role="cell" className="c-act right"><RowAction run={run} mayAnswer={mayAnswer} mayOperate={mayOperate} /></span>
    </div>
  )
})

/** What a run does now, what it asks, or why it stopped: one sentence, two lines at most. */
function Why({ run, gate }: { run: RunListed; gate: GateListed | undefined }) {
  if (gate) return <span className="two">{gate.text.slice(0, 200)}{gate.deadline && <span className="dim"> · due in <Countdown until={gate.deadline} /></span>}</span>
  return <span className="two" title={run.now.length > 90 ? run.now : undefined}>{run.now.slice(0, 200)}</span>
}

/** The one thing that would help this run most. */
function RowAction({ run, mayAnswer, mayOperate }: { run: RunListed; mayAnswer: boolean; mayOperate: boolean }) {
  const id = `act-${run.id}`
  if (run.status === 'waiting') return mayAnswer && <Link id={id} className="btn sm" href={gateAddress(run.id, run.next ?? '')}>Answer</Link>
  if (!mayOperate) return null
  if (run.step_in_doubt) return <Link id={id} className="btn sm amber" href={runAddress(run.id)}>Decide</Link>
  if (!run.recoverable) return null
  if (run.reason === 'limit') return <Link id={id} className="btn sm amber" href={runAddress(run.id, { limits: 'open' })}>Raise limit</Link>
  // It resumes by itself when the provider said; asking sooner is a choice, not a need.
  const waits = run.reason === 'rate_limit'
  return (
    <ActionButton
      id={id} className={`btn sm ${run.status === 'interrupted' && !waits ? 'amber' : ''}`}
      {...(waits ? { busy: 'Trying…' } : { icon: 'retry', busy: 'Resuming…' })}
      act={{ run: run.id, post: (key) => resumeWorkflow(run.id, { head: run.head, key }) }}
    >{waits ? 'Try now' : 'Resume'}</ActionButton>
  )
}
