/** Where an instant is on the time axis. Gaps are short by default, so that a retry days later squashes nothing. */

export interface Span {
  from: number
  to: number
}

export interface Band extends Span {
  /** Where it is drawn, as shares of the width. */
  left: number
  right: number
  /** Whether there is room for its duration above it. */
  isNamed: boolean
}

export interface Scale {
  at: (time: number) => number
  bands: Band[]
  labels: { at: number; time: number }[]
  begin: number
  /** In milliseconds: working, waiting for a person, and stopped. */
  spent: { work: number; wait: number; stop: number }
}

type Kind = 'work' | 'wait' | 'idle' | 'stop'

/** How much room a stop has, as a share of the time worked; waiting gets at most twice as much. */
const STOP_SHARE = 0.09
const IDLE_SHARE = 0.02
/** The least distance between the middles of two labels, in pixels. */
const LABEL_PX = 50

/** A scale over work, waiting for people, and stops. All times are in milliseconds; the axis is so many pixels wide. */
export function scaleOf(work: readonly Span[], wait: readonly Span[], stops: readonly Span[], { isTrue, width }: { isTrue: boolean; width: number }): Scale {
  const all = [...work, ...wait, ...stops]
  const cuts = [...new Set(all.flatMap((one) => [one.from, one.to]))].sort((a, b) => a - b)
  // A run that has just begun may have one instant, and so no length.
  if (cuts.length < 2) return { at: () => 0, bands: [], labels: [], begin: cuts[0] ?? 0, spent: { work: 0, wait: 0, stop: 0 } }
  const kinds = kindsOf(cuts, work, wait, stops)
  const length = (of: Kind) => kinds.reduce((sum, kind, at) => sum + (kind === of ? cuts[at + 1]! - cuts[at]! : 0), 0)
  const spent = { work: length('work'), wait: length('wait'), stop: length('stop') }
  const worked = spent.work || 1
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
    const inside = placed[firstUntil(placed, time)]!
    const share = inside.to > inside.from ? (time - inside.from) / (inside.to - inside.from) : 0
    return Math.min(1, Math.max(0, inside.left + Math.min(1, Math.max(0, share)) * (inside.right - inside.left)))
  }
  const least = LABEL_PX / width
  const bands = named(stops.map((stop) => ({ ...stop, left: at(stop.from), right: at(stop.to) })), least)
  return { at, bands, labels: labelsOf(placed, bands, cuts[0]!, least), begin: cuts[0]!, spent }
}

/** The first segment that ends at this time or later, else the last. */
function firstUntil(segments: readonly Span[], time: number): number {
  let low = 0
  let high = segments.length - 1
  while (low < high) {
    const half = (low + high) >> 1
    if (time <= segments[half]!.to) high = half
    else low = half + 1
  }
  return low
}

const middle = (band: { left: number; right: number }) => (band.left + band.right) / 2

/** The newest stops keep their durations where there is no room for all. */
function named(bands: readonly Omit<Band, 'isNamed'>[], least: number): Band[] {
  let next = Infinity
  return [...bands].reverse().map((band) => {
    const isNamed = next - middle(band) >= least
    if (isNamed) next = middle(band)
    return { ...band, isNamed }
  }).reverse()
}

function kindsOf(cuts: readonly number[], work: readonly Span[], wait: readonly Span[], stops: readonly Span[]): Kind[] {
  const place = new Map(cuts.map((cut, at) => [cut, at]))
  const [stopped, worked, waited] = [stops, work, wait].map((spans) => covered(spans, place, cuts.length))
  return cuts.slice(0, -1).map((_, at) => (stopped![at] ? 'stop' : worked![at] ? 'work' : waited![at] ? 'wait' : 'idle'))
}

/** Which segments between cuts some span covers: one pass, since a run may have thousands of steps. */
function covered(spans: readonly Span[], place: ReadonlyMap<number, number>, count: number): boolean[] {
  const change = new Int32Array(count + 1)
  for (const one of spans) {
    change[place.get(one.from)!]! += 1
    change[place.get(one.to)!]! -= 1
  }
  let open = 0
  return Array.from(change, (by) => (open += by) > 0)
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

function labelsOf(placed: readonly { kind: Kind; from: number; to: number; left: number; right: number }[], bands: readonly Band[], begin: number, least: number) {
  const wanted = [{ at: 0, time: begin }, { at: 1, time: placed.at(-1)!.to }, ...placed.filter((one) => one.kind !== 'idle').map((one) => ({ at: one.left, time: one.from }))]
  const middles = bands.filter((one) => one.isNamed).map(middle)
  const labels: { at: number; time: number }[] = []
  for (const one of wanted) {
    if (![...middles, ...labels.map((label) => label.at)].some((other) => Math.abs(other - one.at) < least)) labels.push(one)
  }
  // Two labels of the same second would only say it twice.
  const second = (time: number) => Math.floor((time - begin) / 1000)
  const sorted = labels.sort((a, b) => a.at - b.at)
  return sorted.filter((one, at) => at === 0 || second(one.time) !== second(sorted[at - 1]!.time))
}
