/** A state as silhouette, word and colour: the silhouettes differ, so colour is the third sign. */

import type { ReactNode } from 'react'
import { statusWord, tone, type Tone } from '../words/status'

const line = { fill: 'none', strokeLinecap: 'round', strokeLinejoin: 'round' } as const

const SHAPES: Record<Tone, ReactNode> = {
  queued: <circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" strokeWidth="1.6" strokeDasharray="2.2 2.2" />,
  planned: <circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" strokeWidth="1.6" strokeDasharray="2.2 2.2" />,
  running: (
    <>
      <circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" strokeOpacity=".28" strokeWidth="1.9" />
      <path d="M8 2.4a5.6 5.6 0 0 1 5.6 5.6" {...line} stroke="currentColor" strokeWidth="1.9" />
    </>
  ),
  waiting: (
    <>
      <path d="M4.9 2.6h6.2L14.2 8l-3.1 5.4H4.9L1.8 8Z" fill="currentColor" />
      <path d="M6.4 6.5c.1-2 3.3-1.9 3.2 0 0 1.2-1.5 1.2-1.6 2.4M8 11.1v.1" {...line} stroke="var(--surface)" strokeWidth="1.4" />
    </>
  ),
  paused: (
    <>
      <rect x="3.4" y="2.8" width="3.4" height="10.4" rx="1.2" fill="currentColor" />
      <rect x="9.2" y="2.8" width="3.4" height="10.4" rx="1.2" fill="currentColor" />
    </>
  ),
  interrupted: (
    <>
      <path d="M8 1.9 14.7 13.3a.6.6 0 0 1-.5.9H1.8a.6.6 0 0 1-.5-.9Z" fill="var(--interrupted-solid)" stroke="var(--interrupted-ink)" strokeWidth=".9" strokeLinejoin="round" />
      <path d="M8 6v3.4M8 11.7v.1" {...line} stroke="var(--on-amber)" strokeWidth="1.6" />
    </>
  ),
  failed: (
    <>
      <path d="M5.3 1.8h5.4l3.5 3.5v5.4l-3.5 3.5H5.3l-3.5-3.5V5.3Z" fill="currentColor" />
      <path d="m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4" {...line} stroke="var(--surface)" strokeWidth="1.6" />
    </>
  ),
  completed: (
    <>
      <circle cx="8" cy="8" r="6.4" fill="currentColor" />
      <path d="m5.2 8.3 2 2 3.8-4.3" {...line} stroke="var(--surface)" strokeWidth="1.6" />
    </>
  ),
  cancelled: (
    <>
      <circle cx="8" cy="8" r="5.7" fill="none" stroke="currentColor" strokeWidth="1.6" />
      <path d="m4.2 11.8 7.6-7.6" {...line} stroke="currentColor" strokeWidth="1.6" />
    </>
  ),
}

export function StatusGlyph({ of }: { of: string | null | undefined }) {
  const kind = tone(of)
  return (
    <svg className={`glyph ${kind} ${kind === 'running' ? 'spin' : ''}`} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[kind]}
    </svg>
  )
}

/** A status in a list. */
export function Status({ status, inDoubt = false, word }: { status: string; inDoubt?: boolean; word?: string }) {
  return (
    <span className={`st ${tone(status)}`}>
      <StatusGlyph of={status} />
      {word ?? statusWord(status, inDoubt)}
    </span>
  )
}

/** A status in a header. */
export function StatusPill({ status, inDoubt = false, word }: { status: string; inDoubt?: boolean; word?: string }) {
  return (
    <span className={`pill ${tone(status)}`}>
      <StatusGlyph of={status} />
      {word ?? statusWord(status, inDoubt)}
    </span>
  )
}
