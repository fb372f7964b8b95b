/** A value as a tree that folds. */

import { useState } from 'react'

const LONG = 200
const MANY = 100

export function JsonTree({ value, name, open = true }: { value: unknown; name?: string; open?: boolean }) {
  const label = name !== undefined && <span className="k">{name}: </span>
  if (value === null || typeof value !== 'object') return <div>{label}<Leaf value={value} /></div>
  const entries: [string, unknown][] = Array.isArray(value) ? value.map((one, at) => [String(at), one]) : Object.entries(value)
  const brackets = Array.isArray(value) ? '[]' : '{}'
  if (!entries.length) return <div>{label}{brackets}</div>
  return <Node label={label} brackets={brackets} entries={entries} open={open} />
}

function Node({ label, brackets, entries, open }: { label: React.ReactNode; brackets: string; entries: [string, unknown][]; open: boolean }) {
  const [isOpen, setOpen] = useState(open)
  const [all, setAll] = useState(false)
  return (
    <details open={isOpen} onToggle={(event) => { event.stopPropagation(); setOpen(event.currentTarget.open) }}>
      <summary>{label}<span className="dim">{brackets[0]}{!isOpen && ` ${entries.length} ${brackets[1]}`}</span></summary>
      {isOpen && (
        <div className="kids">
          {(all ? entries : entries.slice(0, MANY)).map(([key, one]) => <JsonTree key={key} name={key} value={one} open={entries.length <= 12} />)}
          {!all && entries.length > MANY && <button type="button" className="link" onClick={() => setAll(true)}>Show {entries.length - MANY} more</button>}
        </div>
      )}
    </details>
  )
}

function Leaf({ value }: { value: unknown }) {
  const [all, setAll] = useState(false)
  if (typeof value !== 'string') return <span className="n">{String(value)}</span>
  const cut = !all && value.length > LONG
  return <span className="s">“{cut ? value.slice(0, LONG) : value}{cut ? <button type="button" className="link" onClick={() => setAll(true)}>…</button> : '”'}</span>
}
