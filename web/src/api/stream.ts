/** The page's one connection: a WebSocket that is opened again, from where it was, whenever it is lost. */

import { BASE } from './client'

export interface Frame {
  stream: 'feed' | 'events' | 'messages' | 'state' | 'rows' | ''
  event: string
  id: number | string | null
  data: unknown
}

export type Connection =
  | { is: 'connecting' }
  | { is: 'live' }
  /** The server answers, but not as a stream: the page asks again every few seconds. */
  | { is: 'asking' }
  | { is: 'lost'; since: number; again: number }

const WAITS_S = [0.5, 1, 2, 4, 8, 15]
const TICK_MS = 5000
/** After so long a pause of the whole page its connection may be gone without anybody having told the browser. */
const SLEPT_MS = 30_000

/** Follows what `address` names and hands frames on, several at once. */
export class Stream {
  private socket: WebSocket | null = null
  private timer: ReturnType<typeof setTimeout> | undefined
  private tries = 0
  private closed = false
  private queue: Frame[] = []
  private waiting = false
  private heard = Date.now()
  private ticked = Date.now()
  private readonly ticking: ReturnType<typeof setInterval>

  constructor(
    private readonly query: () => string,
    private readonly apply: (frames: readonly Frame[]) => void,
    private readonly say: (connection: Connection) => void,
    private readonly denied: () => void,
  ) {
    addEventListener('online', this.anew)
    document.addEventListener('visibilitychange', this.shown)
    this.ticking = setInterval(this.tick, TICK_MS)
    // A moment later: a page that has just come up says in that time what it follows.
    this.timer = setTimeout(() => this.open(), 60)
  }

  /** Try at once. */
  now = () => {
    if (this.closed || this.socket) return
    clearTimeout(this.timer)
    this.open()
  }

  close() {
    this.closed = true
    clearTimeout(this.timer)
    clearInterval(this.ticking)
    removeEventListener('online', this.anew)
    document.removeEventListener('visibilitychange', this.shown)
    this.drop()
  }

  /** Open another connection, whatever became of this one. */
  private anew = () => {
    this.drop()
    this.now()
  }

  /** After a sleep, of the machine or of a tab that nobody saw, no connection from before is trusted. */
  private tick = () => {
    if (document.visibilityState !== 'visible') return
    const slept = Date.now() - this.ticked > SLEPT_MS
    this.ticked = Date.now()
    if (slept) this.anew()
  }

  private shown = () => {
    this.tick()
    if (document.visibilityState === 'visible') this.now()
  }

  private drop() {
    const socket = this.socket
    this.socket = null
    if (!socket) return
    socket.onmessage = socket.onclose = socket.onerror = null
    // One that is closed before it is open makes browsers complain in the console.
    if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close()
    else socket.close()
  }

  private open() {
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
    const socket = new WebSocket(`${scheme}://${location.host}${BASE}/api/live${this.query()}`)
    this.socket = socket
    socket.onopen = () => {
      this.tries = 0
      this.heard = Date.now()
      this.say({ is: 'live' })
    }
    socket.onmessage = (message) => {
      this.heard = Date.now()
      const read: unknown = JSON.parse(String(message.data))
      for (const frame of (Array.isArray(read) ? read : [read]) as Frame[]) {
        if (frame.event === 'denied') return this.denied()
        this.queue.push(frame)
      }
      this.schedule()
    }
    socket.onclose = () => void this.lost()
  }

  /** One patch per animation frame; a hidden page has none, so there a timer. */
  private schedule() {
    if (this.waiting) return
    this.waiting = true
    const flush = () => {
      this.waiting = false
      const frames = this.queue
      this.queue = []
      if (!this.closed && frames.length) this.apply(frames)
    }
    if (document.hidden) setTimeout(flush, 250)
    else requestAnimationFrame(flush)
  }

  private async lost() {
    this.drop()
    const wait = WAITS_S[Math.min(this.tries++, WAITS_S.length - 1)]! * (0.75 + Math.random() / 2) * 1000
    const again = Date.now() + wait
    this.timer = setTimeout(() => this.open(), wait)
    const answers = await fetch(`${BASE}/healthz`, { cache: 'no-store' }).then((reply) => reply.ok, () => false)
    if (this.closed || this.socket?.readyState === WebSocket.OPEN) return
    this.say(answers ? { is: 'asking' } : { is: 'lost', since: this.heard, again })
  }
}
