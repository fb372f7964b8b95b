/** A list that stays at its end while the reader is there, and never moves what is read otherwise. */

import { Children, useCallback, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from 'react'
import { useKeys } from '../state/keyboard'
import { Icon } from './Icon'

const NEAR = 24

export function Following({ className, of, grows = false, children }: { className: string; of: unknown; grows?: boolean; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null)
  const [on, setOn] = useState(true)
  const own = useRef(false)
  const toEnd = useCallback(() => {
    const list = box.current
    if (!list) return
    own.current = true
    list.scrollTop = list.scrollHeight
  }, [])
  const count = Children.count(children)
  useLayoutEffect(() => {
    if (on) toEnd()
  }, [of, on, toEnd])
  useEffect(() => {
    // What is shown can grow without a new piece: a font, a picture, a parsed text.
    const watch = new ResizeObserver(() => on && toEnd())
    // So does the room for it: a card that opens below takes some.
    for (const one of [box.current, ...(box.current?.children ?? [])]) if (one) watch.observe(one)
    return () => watch.disconnect()
  }, [count, on, toEnd])
  const scrolled = () => {
    const list = box.current!
    if (own.current) return void (own.current = false)
    setOn(list.scrollHeight - list.scrollTop - list.clientHeight < NEAR)
  }
  const follow = () => { setOn(true); toEnd() }
  useKeys({ '.': () => (on ? setOn(false) : follow()) })
  return (
    <div className="follow">
      <div ref={box} className={className} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label="Conversation">{children}</div>
      {(!on || grows) && (
        <button type="button" className="btn sm jump" aria-pressed={on} onClick={follow}><Icon name="end" size="xs" />{grows ? (on ? 'Following' : 'Follow') : 'End'}</button>
      )}
    </div>
  )
}
