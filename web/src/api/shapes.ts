/** What the page reads: the replies, and with a run what the server says about it for people. */

import type * as T from './types'

export interface Tick {
  step: string
  state: string
}

export interface Banner {
  kind: 'in_doubt' | 'limit' | 'restart' | 'crash' | 'rate_limit' | 'crash_loop' | 'failed' | 'final' | 'paused'
  title: string
  line: string
  colour: 'amber' | 'red' | 'slate'
  actions: string[]
  step: string | null
  until: string | null
  limit: T.LimitStop | null
}

export interface Stop {
  seq: number
  reason: string
  says: string
  step: string | null
  at: string
  ended_at: string | null
  by: string | null
  kept: string
}

export interface TimelineRow {
  key: string
  parent: string | null
  kind: string
  label: string
  detail: string
  state: string
  began_at: string | null
  ended_at: string | null
  step: string | null
  tokens: number
  cost: number
}

interface Listed {
  claims: number
  tokens: number
  cost: number
  now: string
  ticks: Tick[]
  steps_planned: number
}

interface Stated {
  banner: Banner | null
  stops: Stop[]
  kept: { steps: number; answers: number; cost: number; again: number }
}

export type RunListed = T.RunListed & Listed
export type RunState = T.RunState & Listed & Stated
export type RunPage = T.RunPage & Listed & Stated & { timeline: TimelineRow[] }
export type ChatRun = T.ChatRunShown & Listed & Stated
export type Gate = T.GateShown & { run: string }
export type ChatPage = Omit<T.ChatPage, 'runs'> & { runs: ChatRun[]; banner: Banner | null; gate: Gate | null }
export interface RunList {
  runs: RunListed[]
  older: number
  cursor: string | null
}

export interface Geometry {
  width: number
  height: number
  nodes: { id: string; label: string; kind: string; shape: string; x: number; y: number; w: number; h: number; state: string | null; step: string | null }[]
  edges: { from: string; to: string; label: string; path: string; label_x: number; label_y: number; taken: boolean }[]
}

export type Drawing = T.Drawing & { geometry: Geometry }

/** Who is signed in, and at what server. */
export interface Me {
  name: string
  roles: string[]
  version: string
  database: string
}

/** One event: `seq`, `kind` and `at`, then its own fields. */
export type EventShown = Record<string, unknown>
