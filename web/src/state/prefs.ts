/** What this browser remembers: the theme, and whether single letters are keys. */

import { useSyncExternalStore } from 'react'

const readers = new Set<() => void>()

function stored(name: string): string | null {
  try {
    return localStorage.getItem(name)
  } catch {
    return null
  }
}

function store(name: string, value: string | null) {
  try {
    if (value === null) localStorage.removeItem(name)
    else localStorage.setItem(name, value)
  } catch {
    // A browser that keeps nothing still works.
  }
  readers.forEach((read) => read())
}

const subscribe = (reader: () => void) => (readers.add(reader), () => void readers.delete(reader))

export function useStored(name: string): [string | null, (value: string | null) => void] {
  const value = useSyncExternalStore(subscribe, () => stored(name))
  return [value, (now) => store(name, now)]
}

/** Put the chosen theme on the page; without a choice the system's counts. */
export function applyTheme() {
  const theme = stored('theme')
  if (theme) document.documentElement.dataset.theme = theme
  else delete document.documentElement.dataset.theme
}

export function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches
  store('theme', dark ? 'light' : 'dark')
  applyTheme()
}

export const lettersAreOn = () => stored('letters') !== 'off'
