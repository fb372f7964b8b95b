/** Where an instant is on the time axis. Gaps are short by default, so that a retry days later squashes nothing. */

export interface Span {
  from: number
  to: number
}

export interface Band extends Span {
  /** Where it is drawn, as shares of the width. */
  left: number
  right: number
}

export interface Scale {
  at: (time: number) => number
  bands: Band[]
  labels: { at: number; time: number }[]
}

type Kind = 'work' | 'wait' | 'idle' | 'stop'

/** How much room a stop has, as a share of the time worked; waiting gets at most twice as much. */
const STOP_SHARE = 0.09
const IDLE_SHARE = 0.02
const LABEL_DISTANCE = 0.11

/** A scale over work, waiting for people, and stops. All times are in milliseconds. */
export function scaleOf(work: readonly Span[], wait: readonly Span[], stops: readonly Span[], isTrue: boolean): Scale {
  const all = [...work, ...wait, ...stops]
  const cuts = [...new Set(all.flatMap((one) => [one.from, one.to]))].sort((a, b) => a - b)
  // A run that has just begun may have one instant, and so no length.
  if (cuts.length < 2) return { at: () => 0, bands: [], labels: [] }
  const kinds = kindsOf(cuts, work, wait, stops)
  const worked = kinds.reduce((sum, kind, at) => sum + (kind === 'work' ? cuts[at + 1]! - cuts[at]! : 0), 0) || 1
  // Segments of one kind that follow each other are one: a stop is one band, whatever happens beside it.
  const segments: { kind: Kind; from: number; to: number; room: number }[] = []
  kinds.forEach((kind, at) => {
    const last = segments.at(-1)
    if (last?.kind === kind) last.to = cuts[at + 1]!
    else segments.push({ kind, from: cuts[at]!, to: cuts[at + 1]!, room: 0 })
  })
  for (const one of segments) one.room = isTrue ? one.to - one.from : roomOf(one.kind, one.to - one.from, worked)
  const total = segments.reduce((sum, one) => sum + one.room, 0) || 1
  let before = 0
  const placed = segments.map((one) => {
    const left = before / total
    before += one.room
    return { ...one, left, right: before / total }
  })
  const at = (time: number) => {
    const inside = placed.find((one) => time <= one.to) ?? placed.at(-1)!
    const share = inside.to > inside.from ? (time - inside.from) / (inside.to - inside.from) : 0
    return Math.min(1, Math.max(0, inside.left + Math.min(1, Math.max(0, share)) * (inside.right - inside.left)))
  }
  const bands = stops.map((stop) => ({ ...stop, left: at(stop.from), right: at(stop.to) }))
  return { at, bands, labels: labelsOf(placed, bands, cuts[0]!) }
}

function kindsOf(cuts: readonly number[], work: readonly Span[], wait: readonly Span[], stops: readonly Span[]): Kind[] {
  const covers = (spans: readonly Span[], from: number, to: number) => spans.some((one) => one.from < to && one.to > from)
  return cuts.slice(0, -1).map((from, at) => {
    const to = cuts[at + 1]!
    if (covers(stops, from, to)) return 'stop'
    if (covers(work, from, to)) return 'work'
    return covers(wait, from, to) ? 'wait' : 'idle'
  })
}

function roomOf(kind: Kind, length: number, worked: number): number {
  switch (kind) {
    case 'stop':
      return worked * STOP_SHARE
    case 'wait':
      return Math.min(length, worked * STOP_SHARE * 2)
    case 'idle':
      return Math.min(length, worked * IDLE_SHARE)
    default:
      return length
  }
}

function labelsOf(placed: readonly { kind: Kind; from: number; to: number; left: number; right: number }[], bands: readonly Band[], begin: number) {
  const wanted = [{ at: 0, time: begin }, { at: 1, time: placed.at(-1)!.to }, ...placed.filter((one) => one.kind !== 'idle').map((one) => ({ at: one.left, time: one.from }))]
  const middles = bands.map((one) => (one.left + one.right) / 2)
  const labels: { at: number; time: number }[] = []
  for (const one of wanted) {
    const near = [...middles, ...labels.map((label) => label.at)].some((other) => Math.abs(other - one.at) < LABEL_DISTANCE * 0.75)
    if (!near || (one.at === 0 && !middles.some((other) => other < 0.06))) labels.push(one)
  }
  // Two labels of the same second would only say it twice.
  const second = (time: number) => Math.floor((time - begin) / 1000)
  const sorted = labels.sort((a, b) => a.at - b.at)
  return sorted.filter((one, at) => at === 0 || second(one.time) !== second(sorted[at - 1]!.time))
}
