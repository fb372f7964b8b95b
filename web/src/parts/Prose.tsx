/** An agent's text: Markdown as soon as its code is there, and plain text until then. */

import { lazy, Suspense, useEffect, useRef, useState } from 'react'

const Markdown = lazy(() => import('./Markdown'))
const WHOLE_MAX = 64 * 1024

/** The text as it was at most a quarter of a second ago, while it grows: parsing it is the dear part. */
function useSlow(text: string, grows: boolean): string {
  const [slow, setSlow] = useState(text)
  const latest = useRef(text)
  latest.current = text
  useEffect(() => {
    if (!grows) return
    const timer = setInterval(() => setSlow(latest.current), 250)
    return () => clearInterval(timer)
  }, [grows])
  return grows ? slow : text
}

export function Prose({ text, grows = false }: { text: string; grows?: boolean }) {
  const slow = useSlow(text, grows)
  // Whoever saw it grow keeps seeing all of it, as it is: nothing moves when it ends.
  const [grew] = useState(grows)
  const [all, setAll] = useState(grew)
  const cut = !all && slow.length > WHOLE_MAX
  const shown = cut ? slow.slice(0, WHOLE_MAX) : slow
  return (
    <div className={grows ? 'grows' : undefined}>
      <Suspense fallback={<div className="prose plain">{shown}</div>}><Markdown text={shown} grows={grew} /></Suspense>
      {cut && <button type="button" className="link" onClick={() => setAll(true)}>Show all</button>}
    </div>
  )
}

/** Text as it is: prompts, logs, output. */
export function Plain({ text, limit = WHOLE_MAX }: { text: string; limit?: number }) {
  const [all, setAll] = useState(false)
  const cut = !all && text.length > limit
  return (
    <div>
      <div className="code" tabIndex={0}>{cut ? text.slice(0, limit) : text}</div>
      {cut && <button type="button" className="link" onClick={() => setAll(true)}>Show all</button>}
    </div>
  )
}
