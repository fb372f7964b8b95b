/** Frames of the live connection put into what is cached. Pure: the cached value goes in, the new one comes out.
 *
 * Nothing is folded here: the server says how a run stands, and the page only puts it in its place. */

import type { EventShown } from '../api/client'
import type { GateListed, Geometry, MessagePiece, MessageShown, RunList, RunListed, RunPage, TimelineRow } from '../api/types'

/** One message of a conversation, as far as it is known. */
export interface Said {
  id: string
  run: string
  step: string
  call: string
  number: number
  role: string
  state: string
  model: string
  parts: { kind: string; text: string }[]
  first: number
  last: number
}

export interface Conversation {
  messages: readonly Said[]
  /** The last position that was seen: reading continues after it. */
  position: number
}

export const SILENCE: Conversation = { messages: [], position: 0 }

/** A conversation from messages that were read at once. */
export function conversationOf(shown: readonly MessageShown[]): Conversation {
  const messages = shown.map((one) => ({
    id: one.id, run: one.run, step: one.step, call: one.call, number: one.number, role: one.role, state: one.state,
    model: one.model, parts: one.parts, first: one.first_position, last: one.last_position ?? one.first_position - 1,
  }))
  // How far a message is known that still grows is not said: it is read again from its beginning.
  const growing = messages.filter((one) => one.state === 'streaming').map((one) => one.first - 1)
  const ended = messages.map((one) => one.last)
  return { messages, position: growing.length ? Math.min(...growing) : Math.max(0, ...ended) }
}

/** Put pieces in: each counts once, in order; a reset replaces what is known of its message. */
export function applyPieces(said: Conversation, pieces: readonly MessagePiece[]): Conversation {
  if (pieces.length === 0) return said
  const messages = [...said.messages]
  let position = said.position
  for (const piece of pieces) {
    position = Math.max(position, piece.position)
    let at = messages.findIndex((one) => one.id === piece.message)
    if (at < 0) {
      if (piece.kind === 'end') continue
      at = messages.push(begun(piece)) - 1
    }
    const one = messages[at]!
    if (piece.kind === 'start') {
      if (one.last < one.first) messages[at] = begun(piece)
      continue
    }
    if (piece.position <= one.last) continue
    messages[at] = grown(one, piece)
  }
  return { messages, position }
}

function begun(piece: MessagePiece): Said {
  return {
    id: piece.message, run: piece.run, step: piece.step, call: piece.call, number: piece.number, role: piece.role,
    state: piece.state ?? 'streaming', model: piece.model, parts: [], first: piece.position,
    last: piece.kind === 'start' ? piece.position : piece.position - 1,
  }
}

function grown(one: Said, piece: MessagePiece): Said {
  const last = piece.position
  switch (piece.kind) {
    case 'reset':
      return { ...one, parts: piece.parts, state: piece.state ?? one.state, last }
    case 'end':
      return { ...one, state: piece.state ?? 'complete', last }
    default: {
      const tail = one.parts.at(-1)
      const joins = tail?.kind === piece.kind && (piece.kind === 'text' || piece.kind === 'reasoning')
      const parts = joins
        ? [...one.parts.slice(0, -1), { kind: tail.kind, text: tail.text + piece.text }]
        : [...one.parts, { kind: piece.kind, text: piece.text }]
      return { ...one, parts, last }
    }
  }
}

/** The pages of a list with one row changed in place. A row that is not in it changes nothing. */
export function applyRow<P extends { pages: RunList[] }>(list: P, row: RunListed): P {
  let found = false
  const pages = list.pages.map((page) => {
    const at = page.runs.findIndex((one) => one.id === row.id)
    if (at < 0 || (page.runs[at]!.head > row.head)) return page
    found = true
    return { ...page, runs: page.runs.with(at, { ...page.runs[at]!, ...row }) }
  })
  return found ? { ...list, pages } : list
}

export interface StateData extends Partial<RunPage> {
  head: number
  timeline?: TimelineRow[]
  /** Keys of rows that are not there any more. */
  timeline_gone?: string[]
}

/** A run's page with what changed: fields are replaced, and rows of the timeline by their key. */
export function applyState(page: RunPage, data: StateData): RunPage {
  if (data.head < page.head) return page
  const { timeline = [], timeline_gone = [], ...fields } = data
  return { ...page, ...fields, timeline: merged(page.timeline, timeline, new Set(timeline_gone)) }
}

function merged(rows: readonly TimelineRow[], changed: readonly TimelineRow[], gone: ReadonlySet<string>): TimelineRow[] {
  const byKey = new Map(changed.map((row) => [row.key, row]))
  const kept = rows.filter((row) => !gone.has(row.key)).map((row) => {
    const now = byKey.get(row.key) ?? row
    byKey.delete(row.key)
    return now
  })
  return [...kept, ...byKey.values()]
}

/** Events after those that are known; what is known already is not repeated. */
export function applyEvents(known: readonly EventShown[], come: readonly EventShown[]): readonly EventShown[] {
  const last = Number(known.at(-1)?.seq ?? 0)
  const fresh = come.filter((event) => Number(event.seq) > last).sort((a, b) => Number(a.seq) - Number(b.seq))
  return fresh.length ? [...known, ...fresh] : known
}

const NODE_STATES: Record<string, string> = { finished: 'succeeded', open: 'running' }

/** The drawing with the states that the timeline has by now: each node as its last step stands. */
export function applyTimeline(geometry: Geometry, rows: readonly TimelineRow[]): Geometry {
  const last = new Map<string, TimelineRow>()
  for (const row of rows)
    if (row.kind === 'step' && row.step && row.state !== 'planned' && !row.step.includes(':'))
      last.set(row.step.split('/').at(-1)!.replace(/#\d+$/, ''), row)
  const nodes = geometry.nodes.map((node) => {
    const row = last.get(node.id)
    return row ? { ...node, step: row.step, state: NODE_STATES[row.state] ?? row.state } : node
  })
  return { ...geometry, nodes }
}

export type GateFrame = GateListed | { run: string; gate: string; closed: true }

/** The open questions after one was asked or closed. */
export function applyGate(gates: readonly GateListed[], frame: GateFrame): readonly GateListed[] {
  const rest = gates.filter((one) => one.run !== frame.run || one.gate !== frame.gate)
  if ('closed' in frame) return rest.length === gates.length ? gates : rest
  const at = gates.findIndex((one) => one.run === frame.run && one.gate === frame.gate)
  return at < 0 ? [...gates, frame] : gates.with(at, frame)
}
