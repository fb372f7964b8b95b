/** Single keys, as long as nobody writes in a field and single letters are on. */

import { useEffect, useRef } from 'react'
import { lettersAreOn } from './prefs'

export type Keys = Record<string, (event: KeyboardEvent) => void>

const isWriting = (target: EventTarget | null) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== 'checkbox')

let lead = ''
let led: ReturnType<typeof setTimeout> | undefined

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
      const act = (lead && now.current[`${lead} ${key}`]) || (!lead && now.current[key])
      if (!act) return
      event.preventDefault()
      act(event)
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
}

/** "G" waits a second for the letter after it. Mounted once, before the keys of pages. */
export function useLead() {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target) || !lettersAreOn()) return
      const was = lead
      clearTimeout(led)
      if (event.key.toLowerCase() === 'g' && !was) {
        led = setTimeout(() => (lead = ''), 1000)
        setTimeout(() => (lead = 'g'))
      } else if (was) setTimeout(() => (lead = ''))
    }
    addEventListener('keydown', pressed, { capture: true })
    return () => removeEventListener('keydown', pressed, { capture: true })
  }, [])
}
