/** Durations and ages in the words of the page: "18 s", "4 min 12 s", "2 h", "7:42". */

const MIN = 60
const HOUR = 3600
const DAY = 86400

/** How long something took: two units at most. */
export function span(seconds: number): string {
  if (seconds < 0.0005) return '0 ms'
  if (seconds < 0.1) return `${Math.round(seconds * 1000)} ms`
  if (seconds < 60) return seconds < 10 || seconds % 1 ? `${Number(seconds.toFixed(1))} s`.replace(/^(\d\d)\.0 /, '$1 ') : `${seconds} s`
  const whole = Math.round(seconds)
  if (whole < HOUR) return pair(Math.floor(whole / MIN), 'min', whole % MIN, 's')
  if (whole < DAY) return pair(Math.floor(whole / HOUR), 'h', Math.floor((whole % HOUR) / MIN), 'min')
  return pair(Math.floor(whole / DAY), 'd', Math.floor((whole % DAY) / HOUR), 'h')
}

function pair(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`
}

/** How long ago, in one unit: "26 s", "4 min", "3 h", "2 d"; "in 16 h" for what is to come. */
export function age(at: number, now: number): string {
  const seconds = (now - at) / 1000
  if (seconds < -1) return `in ${unit(-seconds)}`
  return seconds < 5 ? 'now' : unit(seconds)
}

/** The same as part of a sentence: "26 s ago", "just now", "in 16 h". */
export function ago(at: number, now: number): string {
  const text = age(at, now)
  if (text === 'now') return 'just now'
  return text.startsWith('in ') ? text : `${text} ago`
}

function unit(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`
  if (seconds < HOUR) return `${Math.floor(seconds / MIN)} min`
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h`
  return `${Math.floor(seconds / DAY)} d`
}

/** What is left until a deadline: "0:38", "7:42", "2 h 5 min"; "0:00" when it has passed. */
export function countdown(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000))
  if (seconds >= HOUR) return span(seconds - (seconds % MIN))
  return clock(seconds)
}

/** A place on a time axis: "0:00", "2:09", "1:02:03". */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds)
  const rest = String(whole % 60).padStart(2, '0')
  if (whole < HOUR) return `${Math.floor(whole / 60)}:${rest}`
  return `${Math.floor(whole / HOUR)}:${String(Math.floor((whole % HOUR) / 60)).padStart(2, '0')}:${rest}`
}

/** The time of day of an instant, to the second, where the reader is. */
export function timeOfDay(at: number): string {
  return new Date(at).toLocaleTimeString('en-GB')
}

/** An instant in full, for titles. */
export function exact(at: number): string {
  return new Date(at).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC')
}
