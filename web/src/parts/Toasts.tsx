/** What happened, said politely for six seconds; at most three at once. */

import { useSyncExternalStore } from 'react'
import { Problem } from '../api/client'
import { Icon } from './Icon'
import { StatusGlyph } from './Status'

interface Toast {
  id: number
  text: string
  state: string
}

let toasts: readonly Toast[] = []
let last = 0
const readers = new Set<() => void>()
const publish = (now: readonly Toast[]) => {
  toasts = now
  readers.forEach((read) => read())
}

export function toast(text: string, state = 'failed') {
  const id = ++last
  publish([...toasts.filter((one) => one.text !== text), { id, text, state }].slice(-3))
  setTimeout(() => publish(toasts.filter((one) => one.id !== id)), 6000)
}

/** A refusal in the server's words, with its advice. */
export const toastProblem = (error: unknown) =>
  toast(error instanceof Problem ? [error.message, error.advice].filter(Boolean).join(' ') : String(error))

export function Toasts() {
  const shown = useSyncExternalStore(
    (reader) => (readers.add(reader), () => void readers.delete(reader)),
    () => toasts,
  )
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((one) => (
        <div key={one.id} className="toast">
          <StatusGlyph of={one.state} />
          <span className="grow">{one.text}</span>
          <button type="button" className="btn ghost sm icon" aria-label="Close" onClick={() => publish(toasts.filter((other) => other !== one))}>
            <Icon name="close" size="xs" />
          </button>
        </div>
      ))}
    </div>
  )
}
