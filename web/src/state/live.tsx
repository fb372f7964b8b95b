/** What the page follows, and what frames change in the cache. */

import { QueryClient, useQueryClient, type InfiniteData } from '@tanstack/react-query'
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from 'react'
import type { EventShown } from '../api/client'
import type { ChatPage, GateList, MessagePiece, RunList, RunListed, RunPage } from '../api/types'
import { Stream, type Connection, type Frame } from '../api/stream'
import { applyEvents, applyGate, applyPieces, applyRow, applyState, type Conversation, type GateFrame, type StateData } from './apply'
import { keys } from './keys'

/** What one page follows beside the feed. */
export interface Follow {
  run?: string
  events?: boolean
  of?: string
  rows?: readonly string[]
}

interface Live {
  connection: Connection
  follow: (what: Follow) => void
  retry: () => void
  /** Runs that came since the list was read. */
  fresh: number
  seen: () => void
}

const Context = createContext<Live | null>(null)
const ASK_EVERY_MS = 4000

export function LiveProvider({ children, onDenied }: { children: ReactNode; onDenied: () => void }) {
  const cache = useQueryClient()
  const [connection, setConnection] = useState<Connection>({ is: 'connecting' })
  const [following, setFollowing] = useState('')
  const [fresh, setFresh] = useState(0)
  const stream = useRef<Stream | null>(null)
  const feed = useRef('')
  const denied = useRef(onDenied)
  denied.current = onDenied

  useEffect(() => {
    // Until a page says what it follows there is nothing to open.
    if (!following) return
    const what = JSON.parse(following) as Follow
    const made = new Stream(
      () => query(cache, what, feed.current),
      (frames) => {
        for (const frame of frames) if (frame.stream === 'feed' && frame.id !== null) feed.current = String(frame.id)
        const come = applyFrames(cache, what, frames)
        if (come) setFresh((before) => before + come)
      },
      setConnection,
      () => denied.current(),
    )
    stream.current = made
    return () => made.close()
  }, [following, cache])

  const is = connection.is
  useEffect(() => {
    if (is !== 'asking') return
    const timer = setInterval(() => void cache.refetchQueries({ type: 'active' }), ASK_EVERY_MS)
    return () => clearInterval(timer)
  }, [is, cache])

  // After a reconnect the frames continue where they stopped; what has no position is read once more.
  const before = useRef(is)
  useEffect(() => {
    if (is === 'live' && (before.current === 'lost' || before.current === 'asking')) void cache.invalidateQueries()
    before.current = is
  }, [is, cache])

  const live = useMemo(
    (): Live => ({
      connection, fresh,
      follow: (what) => setFollowing(JSON.stringify(what)),
      retry: () => stream.current?.now(),
      seen: () => setFresh(0),
    }),
    [connection, fresh],
  )
  return <Context value={live}>{children}</Context>
}

export function useLive(): Live {
  const live = useContext(Context)
  if (!live) throw new Error('no live connection above')
  return live
}

/** Follow something for as long as the page shows it; undefined until its snapshot is there. */
export function useFollow(what: Follow | undefined) {
  const { follow } = useLive()
  const text = what && JSON.stringify(what)
  const last = useRef(follow)
  last.current = follow
  useEffect(() => {
    if (text) last.current(JSON.parse(text) as Follow)
  }, [text])
}

/** Why nothing can be done just now, or nothing. */
export function useOffline(): string | undefined {
  return useLive().connection.is === 'lost' ? 'The server cannot be reached.' : undefined
}

function query(cache: QueryClient, what: Follow, feed: string): string {
  const params = new URLSearchParams({ feed })
  if (what.run) {
    params.set('run', what.run)
    if (what.events) params.set('after', String(cache.getQueryData<readonly EventShown[]>(keys.events(what.run))?.at(-1)?.seq ?? 0))
  }
  if (what.of) {
    params.set('of', what.of)
    params.set('position', String(cache.getQueryData<Conversation>(keys.messages(what.of))?.position ?? 0))
  }
  if (what.rows?.length) params.set('runs', what.rows.slice(0, 200).join(','))
  return `?${params}`
}

let counted = 0
let counting: ReturnType<typeof setTimeout> | undefined
/** Counters are the only thing that is read again because of an event, at most once a second. */
function count(cache: QueryClient) {
  if (counting) return
  counting = setTimeout(() => {
    counting = undefined
    counted = Date.now()
    void cache.invalidateQueries({ queryKey: keys.stats })
  }, Math.max(0, counted + 1000 - Date.now()))
}

/** Put frames into the cache; how many runs came that no list has. */
function applyFrames(cache: QueryClient, what: Follow, frames: readonly Frame[]): number {
  const pieces: MessagePiece[] = []
  const events: EventShown[] = []
  const come = new Set<string>()
  for (const frame of frames) {
    switch (`${frame.stream}/${frame.event}`) {
      case 'messages/piece':
        pieces.push(frame.data as MessagePiece)
        break
      case 'events/event':
        events.push(frame.data as EventShown)
        break
      case 'rows/row':
        cache.setQueriesData<InfiniteData<RunList>>({ queryKey: ['runs'] }, (list) => list && applyRow(list, frame.data as RunListed))
        break
      case 'state/state':
        if (what.run) state(cache, what.run, frame.data as StateData)
        break
      case 'feed/gate':
        cache.setQueryData<GateList>(keys.gates, (list) => list && { ...list, gates: [...applyGate(list.gates, frame.data as GateFrame)] })
        count(cache)
        break
      case 'feed/run': {
        const run = frame.data as { run: string; chat: string; status: string; head: number }
        if (known(cache, run)) come.add(run.run)
        count(cache)
        break
      }
      case 'feed/snapshot':
        count(cache)
    }
  }
  if (what.of && pieces.length)
    cache.setQueryData<Conversation>(keys.messages(what.of), (said) => said && applyPieces(said, pieces))
  if (what.run && events.length)
    cache.setQueryData<readonly EventShown[]>(keys.events(what.run), (list) => list && applyEvents(list, events))
  return come.size
}

function state(cache: QueryClient, id: string, data: StateData) {
  cache.setQueryData<RunPage>(keys.run(id), (page) => page && applyState(page, data))
  const chat = data.chat ?? cache.getQueryData<RunPage>(keys.run(id))?.chat
  if (!chat) return
  cache.setQueryData<ChatPage>(keys.chat(chat), (page) => {
    const at = page?.runs.findIndex((run) => run.id === id) ?? -1
    if (!page || at < 0 || page.runs[at]!.head > data.head) return page
    const { timeline: _, timeline_gone: __, ...fields } = data
    const run = { ...page.runs[at]!, ...fields }
    const open = run.gates.find((gate) => gate.decided === null && !gate.expired)
    return {
      ...page, runs: page.runs.with(at, run),
      ...(at === 0 ? { banner: run.is_dismissed ? null : run.banner, gate: run.status === 'waiting' && open ? { ...open, run: id } : null } : {}),
    }
  })
}

/** What a run that changed means for lists and chats; whether a list should have it and has not. */
function known(cache: QueryClient, run: { run: string; chat: string; status: string; head: number }): boolean {
  let isNew = false
  for (const [key, list] of cache.getQueriesData<InfiniteData<RunList>>({ queryKey: ['runs'] })) {
    if (!list || list.pages.some((page) => page.runs.some((one) => one.id === run.run))) continue
    // Ids begin with the time: one that is greater than the first of the list was made later. A filtered list
    // may also get an older run that has just come into the status that it is about.
    const { status = [], ...others } = key[1] as { status?: readonly string[] }
    const isLater = run.run > (list.pages[0]?.runs[0]?.id ?? '')
    isNew ||= status.length ? status.includes(run.status) && !Object.keys(others).length : isLater
  }
  const page = cache.getQueryData<ChatPage>(keys.chat(run.chat))
  if (page && !page.runs.some((one) => one.id === run.run)) void cache.invalidateQueries({ queryKey: keys.chat(run.chat) })
  void cache.invalidateQueries({ queryKey: keys.chats })
  return isNew
}
