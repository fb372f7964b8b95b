/** A structured answer as a person reads it: names with their values, lists as lines, colours as colours. */

import { useState } from 'react'

const COLOUR = /^#[0-9a-f]{3,8}$/i
const MANY = 12

export function Structured({ value }: { value: unknown }) {
  return <div className="structured"><Value value={value} /></div>
}

const isPlain = (value: unknown): value is string | number | boolean | null => value === null || typeof value !== 'object'

function Value({ value }: { value: unknown }) {
  const [all, setAll] = useState(false)
  if (isPlain(value)) return <span>{value === null ? 'none' : String(value)}</span>
  if (Array.isArray(value)) {
    if (!value.length) return <span className="dim">none</span>
    if (value.every((one) => typeof one === 'string' && COLOUR.test(one)))
      return <span className="line" style={{ gap: 4, display: 'inline-flex' }}>{(value as string[]).slice(0, MANY).map((one, at) => <i key={at} title={one} style={{ width: 14, height: 14, borderRadius: 4, background: one, boxShadow: 'inset 0 0 0 1px var(--line-strong)' }} />)}</span>
    if (value.every(isPlain) && value.join('').length < 90) return <span>{value.join(' · ')}</span>
    return (
      <ul>
        {(all ? value : value.slice(0, MANY)).map((one, at) => <li key={at}><Value value={one} /></li>)}
        {!all && value.length > MANY && <li><button type="button" className="link" onClick={() => setAll(true)}>Show {value.length - MANY} more</button></li>}
      </ul>
    )
  }
  return (
    <dl>
      {Object.entries(value as Record<string, unknown>).map(([name, one]) => (
        <div key={name}><dt>{name.replaceAll('_', ' ')}</dt><dd><Value value={one} /></dd></div>
      ))}
    </dl>
  )
}
