/** Times that stay true: one timer for the whole page, exact in the title. */

import { useSyncExternalStore } from 'react'
import { serverNow } from '../api/client'
import { ago, age, countdown, exact, timeOfDay } from '../words/durations'

let now = Math.floor(serverNow() / 1000)
let timer: ReturnType<typeof setInterval> | undefined
const readers = new Set<() => void>()

function subscribe(reader: () => void) {
  readers.add(reader)
  timer ??= setInterval(() => {
    now = Math.floor(serverNow() / 1000)
    readers.forEach((read) => read())
  }, 1000)
  return () => {
    readers.delete(reader)
    if (readers.size === 0) {
      clearInterval(timer)
      timer = undefined
    }
  }
}

/** The server's time in milliseconds, to the second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now) * 1000
}

export function Age({ at, sentence = false }: { at: string; sentence?: boolean }) {
  const time = Date.parse(at)
  const text = (sentence ? ago : age)(time, useNow())
  return <time dateTime={at} title={exact(time)} className="num">{text}</time>
}

export function TimeOfDay({ at }: { at: string }) {
  const time = Date.parse(at)
  return <time dateTime={at} title={exact(time)} className="num">{timeOfDay(time)}</time>
}

export function Countdown({ until }: { until: string }) {
  return <time dateTime={until} title={exact(Date.parse(until))} className="num">{countdown(Date.parse(until), useNow())}</time>
}
