/** Steps, attempts, calls and stops in time. Gaps are short, or everything is to scale. */

import { useVirtualizer } from '@tanstack/react-virtual'
import { useLayoutEffect, useMemo, useRef, useState, type RefObject } from 'react'
import type { RunPage, StopShown, TimelineRow } from '../api/types'
import { clock, span } from '../words/durations'
import { scaleOf, type Scale, type Span } from '../words/scale'
import { reasonWord, stopTone, tone } from '../words/status'
import { Icon } from './Icon'
import { StatusGlyph } from './Status'
import { useNow } from './Time'

interface Shown {
  row: TimelineRow
  depth: number
  attempts: TimelineRow[]
  isGate: boolean
  /** Whether it is a step of a flow: a call, but what the flow consists of. */
  isPart: boolean
}

/** Which nodes ask a person, and which are flows. */
export interface NodeKinds {
  gates: ReadonlySet<string>
  flows: ReadonlySet<string>
}

const PLANNED_SHOWN = 5

const nodeOf = (step: string) => step.split('/').at(-1)!.replace(/#\d+$/, '')
/** Whether it is a question from inside a step, such as `flow#1:ask`. */
const isInner = (step: string) => step.includes(':')
const REQUEST = /\/m\d+(\.t\d+)?\.\d+$/

/** Rows as they are drawn: steps in their order, branches left out, calls of agents only where they are looked at. */
function arrange(page: RunPage, picked: string | null, nodes: NodeKinds): Shown[] {
  const rows = page.timeline
  const byKey = new Map(rows.map((row) => [row.key, row]))
  const gates = new Set(page.gates.map((gate) => gate.gate))
  const attempts = Map.groupBy(rows.filter((row) => row.kind === 'attempt'), (row) => row.parent)
  const above = (row: TimelineRow): string | null => {
    const parent = row.parent ? byKey.get(row.parent) : undefined
    if (!parent) return null
    return parent.kind === 'branch' || parent.kind === 'attempt' ? above(parent) : parent.key
  }
  const begun = rows.filter((row) => row.state !== 'planned' && row.kind !== 'branch' && row.kind !== 'attempt')
  const below = Map.groupBy(begun, above)
  const shown: Shown[] = []
  const add = (row: TimelineRow, depth: number) => {
    const isPart = row.kind === 'call' && row.step !== null && nodes.flows.has(nodeOf(row.step)) && !REQUEST.test(row.key)
    if (row.kind === 'call' && !isPart && row.step !== picked && byKey.get(row.parent ?? '')?.state !== 'open') return
    shown.push({ row, depth, isPart, attempts: attempts.get(row.key) ?? [], isGate: row.step !== null && (gates.has(row.step) || isInner(row.step) || nodes.gates.has(nodeOf(row.step))) })
    for (const one of below.get(row.key) ?? []) add(one, depth + 1)
  }
  for (const row of below.get(null) ?? []) add(row, 0)
  return shown
}

const start = (row: TimelineRow) => (row.began_at ? Date.parse(row.began_at) : null)

/** When a row ended; an open one lasts until now, one that failed or was cut off until the stop after it. */
function end(row: TimelineRow, stops: readonly StopShown[], now: number): number {
  if (row.ended_at) return Date.parse(row.ended_at)
  const from = start(row) ?? now
  const stop = stops.find((one) => Date.parse(one.at) >= from)
  return row.state !== 'open' && row.state !== 'waiting' && stop ? Date.parse(stop.at) : now
}

function spans(shown: Shown, stops: readonly StopShown[], now: number): { from: number; to: number; state: string }[] {
  const rows = shown.attempts.length ? shown.attempts : [shown.row]
  return rows.flatMap((row, at) => {
    const from = start(row)
    // A fork has its parent's attempts without its stops: one that was cut off ended before the next began.
    const next = rows[at + 1] ? start(rows[at + 1]!) : null
    return from === null ? [] : [{ from, to: Math.max(from, Math.min(end(row, stops, now), next ?? Infinity)), state: row.state }]
  })
}

const NO_NODES: NodeKinds = { gates: new Set(), flows: new Set() }
const isOpen = (page: RunPage) => page.status === 'running' || page.status === 'waiting' || page.stops.some((stop) => !stop.ended_at)

/** Whether a row is work of the row above it. A question from inside a step is not: the step works beside it. */
const isWorkOf = (one: Shown) => one.depth > 0 && one.row.kind !== 'call' && !(one.row.step && isInner(one.row.step))

function scaled(page: RunPage, rows: readonly Shown[], now: number, isTrue: boolean, width: number): Scale {
  const stops = page.stops.map((stop): Span => ({ from: Date.parse(stop.at), to: stop.ended_at ? Date.parse(stop.ended_at) : Math.max(now, Date.parse(stop.at)) }))
  const all = rows.filter((one) => one.row.kind !== 'call')
  const parents = new Set(all.filter(isWorkOf).map((one) => one.row.parent))
  const leaves = all.filter((one) => !parents.has(one.row.key))
  const of = (isGate: boolean) => leaves.filter((one) => one.isGate === isGate).flatMap((one) => spans(one, page.stops, now))
  return scaleOf(of(false), of(true), stops, { isTrue, width })
}

/** How long the run worked, waited for a person, and was stopped; null before its first step. */
export function useSpent(page: RunPage) {
  const ticking = useNow()
  const now = isOpen(page) ? ticking : Date.parse(page.ended_at ?? page.updated_at)
  const rows = useMemo(() => arrange(page, null, NO_NODES), [page])
  return rows.length ? scaled(page, rows, now, true, 1).spent : null
}

export function Timeline({ page, picked, onPick, isTrue, scroller, nodes }: {
  page: RunPage
  nodes: NodeKinds
  picked: string | null
  onPick: (step: string | null) => void
  isTrue: boolean
  scroller: RefObject<HTMLDivElement | null>
}) {
  const ticking = useNow()
  const [width, setWidth] = useState(600)
  const axis = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.max(1, entry.contentRect.width)))
    if (axis.current) watch.observe(axis.current)
    return () => watch.disconnect()
  }, [])
  const now = isOpen(page) ? ticking : Date.parse(page.ended_at ?? page.updated_at)
  const rows = useMemo(() => arrange(page, picked, nodes), [page, picked, nodes])
  // What is to come is told with the run itself: rows of the timeline may have been read before a step began.
  const planned = page.ticks.filter((tick) => tick.state === 'planned').map((tick) => tick.step)
  const scale = useMemo(() => scaled(page, rows, now, isTrue, width), [page, rows, now, isTrue, width])

  const list = useVirtualizer({
    count: rows.length, getScrollElement: () => scroller.current, overscan: 12,
    estimateSize: (at) => (rows[at]?.row.kind === 'call' && !rows[at].isPart ? 26 : 32), getItemKey: (at) => rows[at]?.row.key ?? at,
  })
  const parentKeys = useMemo(() => new Set(rows.flatMap((one) => (isWorkOf(one) ? [parentOf(rows, one)] : []))), [rows])
  return (
    <>
      <div className="axis" aria-hidden="true">
        <span />
        <div ref={axis}>{scale.labels.map((label) => <span key={label.at} style={{ left: `${label.at * 100}%` }}>{clock((label.time - scale.begin) / 1000)}</span>)}</div>
        <span />
      </div>
      <div className="tline" role="list" aria-label="Timeline">
        <Bands scale={scale} stops={page.stops} isHigh={list.getTotalSize() > 140} />
        <div style={{ height: list.getTotalSize(), position: 'relative' }}>
          {list.getVirtualItems().map((item) => {
            const shown = rows[item.index]!
            return (
              <div key={item.key} role="listitem" style={{ position: 'absolute', insetInline: 0, top: 0, transform: `translateY(${item.start}px)` }}>
                <Row shown={shown} isPicked={shown.row.step === picked && shown.row.kind !== 'call'} isParent={parentKeys.has(shown.row.key)} onPick={onPick} scale={scale} stops={page.stops} now={now} />
              </div>
            )
          })}
        </div>
      </div>
      <Planned steps={planned} />
    </>
  )
}

const parentOf = (rows: readonly Shown[], one: Shown) => {
  const at = rows.indexOf(one)
  for (let before = at - 1; before >= 0; before--) if (rows[before]!.depth < one.depth && rows[before]!.row.kind !== 'call') return rows[before]!.row.key
  return ''
}

function Row({ shown, isPicked, isParent, onPick, scale, stops, now }: {
  shown: Shown
  isPicked: boolean
  isParent: boolean
  onPick: (step: string | null) => void
  scale: Scale
  stops: readonly StopShown[]
  now: number
}) {
  const { row, depth, isGate, isPart } = shown
  const isCall = row.kind === 'call' && !isPart
  const isTool = isCall && !/^m\d+$/.test(row.label)
  const state = row.state === 'waiting' ? 'waiting' : row.state
  const bars = spans(shown, stops, now)
  const from = bars[0]?.from
  const took = row.state === 'interrupted' ? (isCall ? 'lost' : 'cut off')
    : isGate || !shown.attempts.length ? (from === undefined ? '' : span((bars.at(-1)!.to - from) / 1000))
    : span(bars.reduce((sum, bar) => sum + (bar.to - bar.from), 0) / 1000)
  const isLost = isCall && row.state === 'interrupted'
  const name = isCall && !isTool ? (isLost || row.state === 'failed' ? row.label : `${row.label} · ${row.detail.replace(/^.*:/, '')}`) : isCall || isPart ? shortCall(row.label) : (row.step ?? row.label).split('/').at(-1)!
  const note = isCall ? (isLost || row.state === 'failed' ? row.detail : '') : decided(row.detail)
  return (
    <button
      type="button" className={`tl w-full ${isCall ? 'call' : ''} ${isPicked ? 'sel' : ''}`} aria-current={isPicked ? 'true' : undefined}
      onClick={() => onPick(isPicked ? null : row.step)}
    >
      <span className="tn" style={{ paddingLeft: 14 + depth * 18 }}>
        {isCall ? <span className={tone(row.state)} style={{ color: 'var(--c)' }}><Icon name={isTool ? 'tool' : 'model'} /></span> : <StatusGlyph of={state} />}
        <span className={`cut name ${isCall ? 'mono' : ''}`}>{name}<span className="sr"> {row.state}</span></span>
        {note && <span className="note dim cut" title={note}>{note}</span>}
      </span>
      <span className="tb">
        {bars.map((bar, at) => {
          const left = scale.at(bar.from)
          const kind = isCall ? `${isTool ? 'toolb' : 'callb'} ${bar.state === 'open' ? 'open' : bar.state === 'interrupted' ? 'interrupted' : ''}`
            : isParent ? `thin ${tone(bar.state)}` : isGate ? 'waiting' : bar.state === 'interrupted' ? 'interrupted' : tone(bar.state)
          return <span key={at} className={`b ${kind}`} style={{ left: `${left * 100}%`, width: `${Math.max(0, scale.at(bar.to) - left) * 100}%` }} />
        })}
      </span>
      <span className="td dim num">{took}</span>
    </button>
  )
}

/** `[N] No, by token:ines` as `No, by ines`. */
const decided = (detail: string) => detail.replace(/^\[\w\]\s*(?=.*, by )/, '').replace(/, by token:/, ', by ')

/** `write {"path": "index.html", …}` as `write index.html`. */
function shortCall(label: string): string {
  const at = label.indexOf(' {')
  if (at < 0) return label
  const value = /:\s*"([^"]*)"/.exec(label.slice(at))?.[1]
  return value ? `${label.slice(0, at)} ${value}` : label
}

function Bands({ scale, stops, isHigh }: { scale: Scale; stops: readonly StopShown[]; isHigh: boolean }) {
  return (
    <div className="bands" aria-hidden="true">
      {scale.bands.map((band, at) => {
        const stop = stops[at]!
        return (
          <div key={stop.seq} className={`band ${stopTone(stop.reason)}`} style={{ left: `${band.left * 100}%`, width: `${Math.max(0.004, band.right - band.left) * 100}%` }}>
            {band.isNamed && <em>{stop.ended_at ? span((band.to - band.from) / 1000) : 'now'}</em>}
            {isHigh && <b>{reasonWord(stop.reason)}</b>}
          </div>
        )
      })}
    </div>
  )
}

function Planned({ steps }: { steps: readonly string[] }) {
  const apart = steps.length > PLANNED_SHOWN ? PLANNED_SHOWN - 1 : steps.length
  const lines = [...steps.slice(0, apart), ...(steps.length > apart ? [steps.slice(apart).join(' · ')] : [])]
  return (
    <ul aria-label="Planned">
      {lines.map((line) => (
        <li key={line} className="tl planned"><span className="tn" style={{ gridColumn: '1 / -1' }}><StatusGlyph of="planned" /><span className="cut">{line}</span></span></li>
      ))}
    </ul>
  )
}

export function useScroller() {
  return useRef<HTMLDivElement>(null)
}
