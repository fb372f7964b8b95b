/** A series as bars, with the same figures as a table for who does not see it. */

import { useLayoutEffect, useRef, useState } from 'react'

export interface Bar {
  name: string
  short: string
  value: number
}

/** Whether a limit is drawn: one that is far above all bars would leave nothing of them to see. */
export const limitIsNear = (bars: readonly { value: number }[], limit: number) => limit <= 5 * Math.max(...bars.map((bar) => bar.value))

const H = 176
const BASE = 149

export function Bars({ label, bars, words, limit }: { label: string; bars: readonly Bar[]; words: (value: number) => string; limit: number | null }) {
  const box = useRef<HTMLDivElement>(null)
  const [wide, setWide] = useState(1110)
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => entry && setWide(Math.max(240, Math.round(entry.contentRect.width))))
    if (box.current) watch.observe(box.current)
    return () => watch.disconnect()
  }, [])
  const room = wide - 60
  const highest = Math.max(1, ...bars.map((bar) => bar.value))
  const isNear = limit !== null && limitIsNear(bars, limit)
  const most = nice(isNear ? Math.max(limit, highest) : highest)
  const y = (value: number) => BASE - (value / most) * 130
  const step = Math.min(73, room / Math.max(1, bars.length))
  const lines = [0.25, 0.5, 0.75, 1].map((share) => share * most)
  return (
    <div ref={box} style={{ position: 'relative' }}>
      <svg viewBox={`0 0 ${wide} ${H}`} className="plot" aria-hidden="true">
        {lines.map((value) => <g key={value}><path d={`M0 ${y(value)}H${room}`} stroke="var(--line)" /><text x={wide - 2} y={y(value) + 4} textAnchor="end">{words(value)}</text></g>)}
        {isNear && <path d={`M0 ${y(limit)}H${room}`} stroke="var(--interrupted-solid)" strokeDasharray="4 3" strokeWidth="1.5" />}
        {bars.map((bar, at) => (
          <g key={bar.name}>
            <title>{`${bar.name}: ${words(bar.value)}`}</title>
            <rect x={at * step + step * 0.22} y={y(bar.value)} width={Math.min(34, step * 0.56)} height={Math.max(bar.value ? 1 : 0, BASE - y(bar.value))} rx="2" fill="var(--ink-2)" />
            <text x={at * step + step * 0.22 + Math.min(34, step * 0.56) / 2} y={168} textAnchor="middle">{bar.short}</text>
          </g>
        ))}
      </svg>
      <table className="sr"><caption>{label}</caption><tbody>{bars.map((bar) => <tr key={bar.name}><th scope="row">{bar.name}</th><td>{words(bar.value)}</td></tr>)}</tbody></table>
    </div>
  )
}

/** The next number that is easy to read: 1, 2, 4, 5 or 10 times a power of ten. */
function nice(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value))
  return ([1, 2, 4, 5, 8, 10].find((one) => one * power >= value) ?? 10) * power
}
