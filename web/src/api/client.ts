/** Every request of the page: JSON over fetch, problems as exceptions, a key for each change. */

import type { ChatPage, Drawing, RunList, RunPage, RunState } from './types'
import type * as T from './types'

/** Who is signed in, and at what server. */
export interface Me {
  name: string
  roles: string[]
  version: string
  database: string
}

/** One event: `seq`, `kind` and `at`, then its own fields. */
export type EventShown = Record<string, unknown>

/** The base path of the server, without a slash at its end. */
export const BASE = (document.querySelector<HTMLMetaElement>('meta[name="onward-base"]')?.content ?? '/').replace(/\/+$/, '')

/** Why a request was refused, in the server's words. `status` is 0 if the server could not be reached. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly advice = '',
    readonly details: Record<string, unknown> = {},
    readonly request = '',
  ) {
    super(message)
  }
}

type Query = Record<string, string | number | boolean | undefined | null | readonly string[]>

interface Ask {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  query?: Query
  body?: unknown
  key?: string
  head?: number
  signal?: AbortSignal
}

let ahead = 0
/** The time at the server, as far as replies tell: deadlines are counted down by it. */
export const serverNow = () => Date.now() + ahead

/** A new key: the same request under it is executed once. */
export function newKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === '') continue
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one))
  }
  const text = search.toString()
  return `${BASE}/api${path}${text ? `?${text}` : ''}`
}

let onSignedOut: () => void = () => {}
/** What happens when the server no longer knows who we are. */
export const whenSignedOut = (act: () => void) => void (onSignedOut = act)

export async function ask<R>(path: string, { method = 'GET', query, body, key, head, signal }: Ask = {}): Promise<R> {
  const headers: Record<string, string> = { Accept: 'application/json' }
  if (method === 'POST') headers['Idempotency-Key'] = key ?? newKey()
  if (head !== undefined) headers['If-Match'] = `"${head}"`
  if (method === 'POST' || method === 'PUT') headers['Content-Type'] = 'application/json'
  let reply: Response
  try {
    reply = await fetch(address(path, query), {
      method, headers, credentials: 'same-origin', cache: 'no-store',
      ...(headers['Content-Type'] ? { body: JSON.stringify(body ?? {}) } : {}),
      ...(signal ? { signal } : {}),
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new Problem(0, 'offline', 'The server cannot be reached.')
  }
  const date = Date.parse(reply.headers.get('date') ?? '')
  // The header has whole seconds: within them nothing is known, so the clocks may agree.
  if (!Number.isNaN(date)) ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0
  const text = await reply.text()
  const value: unknown = text && reply.headers.get('content-type')?.includes('json') ? JSON.parse(text) : null
  if (reply.ok) return value as R
  const said = (value ?? {}) as Partial<Record<string, unknown>>
  if (reply.status === 401 && path !== '/session') onSignedOut()
  throw new Problem(
    reply.status, String(said.code ?? 'internal'),
    String(said.detail ?? said.title ?? `The server returned ${reply.status}.`),
    String(said.advice ?? ''), (said.details ?? {}) as Record<string, unknown>, String(said.request ?? ''),
  )
}

const get = <R>(path: string, query?: Query, signal?: AbortSignal) =>
  ask<R>(path, { ...(query ? { query } : {}), ...(signal ? { signal } : {}) })
const run = (id: string) => `/runs/${encodeURIComponent(id)}`

// Runs
export interface RunFilters {
  text?: string
  status?: readonly string[]
  pipeline?: string
  chat?: string
  tag?: string
  since?: string
}
export const listRuns = (filters: RunFilters, cursor?: string, limit = 50, signal?: AbortSignal) =>
  get<RunList>('/runs', { ...filters, cursor, limit }, signal)
export const findRun = (text: string) => get<RunList>('/runs', { find: text, limit: 10 })
export const getRun = (id: string) => get<RunState>(run(id))
export const showRun = (id: string, signal?: AbortSignal) => get<RunPage>(`${run(id)}/steps`, {}, signal)
export const showStep = (id: string, step: string, signal?: AbortSignal) => get<T.StepPage>(`${run(id)}/step`, { step }, signal)
export const listCalls = (id: string, step?: string) => get<T.CallList>(`${run(id)}/calls`, { step })
export const listArtifacts = (id: string) => get<T.ArtifactList>(`${run(id)}/artifacts`)
/** One receipt as it is on disk: `file` is its name, the rest its content. */
export interface ReceiptShown extends Record<string, unknown> {
  file: string
  step_id: string
  status: string
  attempts: unknown[]
  duration_ms: number
  completed_at: string
}
export const listReceipts = (id: string, signal?: AbortSignal) =>
  get<Omit<T.ReceiptList, 'receipts'> & { receipts: ReceiptShown[] }>(`${run(id)}/receipts`, {}, signal)
/** The end of what the commands of a step printed. */
export const readPrinted = (id: string, step: string, signal?: AbortSignal) => get<T.PrintedShown>(`${run(id)}/log`, { step }, signal)
export const artifactAddress = (id: string, artifact: string) => address(`${run(id)}/artifact`, { id: artifact })
export const drawRun = (id: string, signal?: AbortSignal) => get<Drawing>(`${run(id)}/graph`, {}, signal)
export const previewResume = (id: string, action?: string) => get<T.ResumePreview>(`${run(id)}/resume`, { action })

/** Let a stopped run continue where it stopped. `action` is for a step in doubt: retry, skip, continue, abort. */
export const resumeWorkflow = (id: string, more: { action?: string; fresh?: boolean; head?: number; key?: string } = {}) => {
  const { head, key, ...body } = more
  return ask<RunState>(`${run(id)}/resume`, { method: 'POST', body, ...(head !== undefined ? { head } : {}), ...(key ? { key } : {}) })
}
/** Give a run up for good. */
export const cancelWorkflow = (id: string, reason = '', key?: string) =>
  ask<RunState>(`${run(id)}/cancel`, { method: 'POST', body: reason ? { reason } : {}, ...(key ? { key } : {}) })
export const pauseRun = (id: string, after = 'step') => ask<RunState>(`${run(id)}/pause`, { method: 'POST', body: { after } })
export const dismissRun = (id: string) => ask<RunState>(`${run(id)}/dismiss`, { method: 'POST' })
export const steerRun = (id: string, text: string) => ask<unknown>(`${run(id)}/steer`, { method: 'POST', body: { text } })
export interface Fork {
  checkpoint?: number
  from_step?: string
  changes?: Record<string, unknown>
}
export const forkRun = (id: string, fork: Fork, key?: string) =>
  ask<RunState & { notice: string }>(`${run(id)}/fork`, { method: 'POST', body: fork, ...(key ? { key } : {}) })
export interface Decision {
  gate: string
  choice?: string
  text?: string
  verdict?: string
  content_hash?: string
}
export const answerGate = (id: string, decision: Decision, key?: string) =>
  ask<RunState>(`${run(id)}/answer`, { method: 'POST', body: decision, ...(key ? { key } : {}) })
/** What was decided about each of several runs: a problem for those that refused. */
export interface ManyResults {
  results: { run: string; problem?: { detail: string; code: string } | null }[]
}
export const resumeMany = (runs: string[]) => each(runs, (id) => resumeWorkflow(id))
export const cancelMany = (runs: string[]) => each(runs, (id) => cancelWorkflow(id))

/** Decide about several runs, four at a time: one that refuses stops none of the others. */
async function each(runs: readonly string[], decide: (id: string) => Promise<unknown>): Promise<ManyResults> {
  const results: ManyResults['results'] = []
  const left = [...runs]
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      const run = id
      const problem = await decide(run).then(() => null, (error: unknown) => (error instanceof Problem ? { detail: error.message, code: error.code } : { detail: String(error), code: 'internal' }))
      results.push({ run, problem })
    }
  }
  await Promise.all([work(), work(), work(), work()])
  return { results }
}
export interface NewRun {
  pipeline: string
  inputs?: Record<string, unknown>
  chat?: string
  tags?: string[]
  simulation?: Record<string, unknown>
}
export const submitRun = (body: NewRun, key?: string) =>
  ask<T.Submitted>('/runs', { method: 'POST', body, ...(key ? { key } : {}) })

/** A page of a run's events after `after`. */
export const readEvents = (id: string, after: number, limit = 200, signal?: AbortSignal) =>
  get<{ events: EventShown[]; cursor: number | string | null }>(`${run(id)}/events`, { after, limit }, signal)
export const listCheckpoints = (id: string, after = 0) =>
  get<{ checkpoints: T.Checkpoint[]; cursor: number | string | null }>(`${run(id)}/checkpoints`, { after, limit: 200 })

// Gates, chats, messages
export const listGates = (signal?: AbortSignal) => get<T.GateList>('/gates', { limit: 200 }, signal)
export const listChats = (cursor?: string) => get<T.ChatList>('/chats', { cursor, limit: 50 })
export const showChat = (chat: string, signal?: AbortSignal) => get<ChatPage>('/chat', { chat, messages: 200 }, signal)
export const readMessages = (of: string, after = 0, limit = 200, signal?: AbortSignal) =>
  get<{ pieces: T.MessagePiece[]; cursor: number | string | null }>('/messages', { of, after, limit }, signal)
export interface Said {
  chat: string
  text: string
  fresh?: boolean
  resume?: boolean
}
export const sendMessage = (said: Said, key: string) => ask<T.MessageSent>('/messages', { method: 'POST', body: said, key })

// The database
export const listLimits = (signal?: AbortSignal) => get<T.LimitList>('/limits', { limit: 200 }, signal)
export const getUsage = (by: string, limit = 50, signal?: AbortSignal) => get<T.UsageList>('/usage', { by, limit }, signal)
export const setLimit = (scope: string, measure: string, value: number) =>
  ask<T.LimitChanged>('/limits', { method: 'PUT', query: { scope }, body: { measure, value } })
export const resetLimits = (scope: string) => ask<T.LimitChanged>('/limits', { method: 'DELETE', query: { scope } })
export const getStats = (signal?: AbortSignal) => get<T.Stats>('/stats', {}, signal)
export const listPipelines = () => get<T.PipelineList>('/pipelines', { limit: 200 })

// Who is signed in
export const getMe = (signal?: AbortSignal) => get<Me>('/session', {}, signal)
export const signIn = (secret: { code: string } | { token: string }) =>
  ask<unknown>('/session', { method: 'POST', body: secret })
export const signOut = () => ask<unknown>('/session', { method: 'DELETE' })
