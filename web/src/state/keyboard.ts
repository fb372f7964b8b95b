/** Single keys, as long as nobody writes in a field and single letters are on. */

import { useEffect, useRef } from 'react'
import { lettersAreOn } from './prefs'

export type Keys = Record<string, (event: KeyboardEvent) => void>

const isWriting = (target: EventTarget | null) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== 'checkbox')

let lead = ''
let led: ReturnType<typeof setTimeout> | undefined
/** The "g" that came before an event, if one did. */
const leads = new WeakMap<Event, string>()

/** Keys of a page: "j", "/", "Escape", or two in a row: "g r". */
export function useKeys(keys: Keys) {
  const now = useRef(keys)
  now.current = keys
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
      if (isWriting(event.target) || document.querySelector('dialog[open], [popover]:popover-open')) return
      if (event.key.length === 1 && event.key !== '/' && event.key !== '?' && !lettersAreOn()) return
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
      const before = leads.get(event)
      // A button or a link that has the focus keeps its Enter.
      if (key === 'Enter' && event.target instanceof Element && event.target.closest('a, button, summary')) return
      const act = now.current[before ? `${before} ${key}` : key]
      if (!act) return
      event.preventDefault()
      act(event)
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
}

/** Ctrl or ⌘ with a letter, also while somebody writes. */
export function useChord(letter: string, act: () => void) {
  const now = useRef(act)
  now.current = act
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== letter) return
      event.preventDefault()
      now.current()
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [letter])
}

/** "G" waits a second for the letter after it. Mounted once; it hears keys before the pages do. */
export function useLead() {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.key === 'Shift' || isWriting(event.target)) return
      clearTimeout(led)
      if (lead) {
        leads.set(event, lead)
        lead = ''
      } else if (event.key.toLowerCase() === 'g') {
        lead = 'g'
        led = setTimeout(() => (lead = ''), 1000)
      }
    }
    addEventListener('keydown', pressed, { capture: true })
    return () => removeEventListener('keydown', pressed, { capture: true })
  }, [])
}
