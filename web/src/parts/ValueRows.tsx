/** Values by name, as JSON or as plain text: inputs of a run, changes of a fork. */

import { Icon } from './Icon'

export interface ValueRow {
  name: string
  text: string
}

/** JSON if it is JSON, else the text itself: `3`, `true` and `{"a": 1}` are values, `dark` is a text. */
export function parseValue(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** A value that there is, as it would be written here; cut, for it only reminds. */
const asWritten = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, 60)

export function ValueRows({ rows, onChange, known = {} }: { rows: readonly ValueRow[]; onChange: (rows: ValueRow[]) => void; known?: Readonly<Record<string, unknown>> }) {
  const names = Object.keys(known).filter((name) => !name.startsWith('graph.'))
  const all = [...rows, { name: '', text: '' }]
  const change = (at: number, row: ValueRow) => onChange(at < rows.length ? rows.with(at, row) : [...rows, row])
  return (
    <div className="grid gap-1.5">
      {!!names.length && <datalist id="value-names">{names.map((name) => <option key={name} value={name} />)}</datalist>}
      {all.map((row, at) => (
        <div key={at} className="line">
          <span className="field" style={{ flex: '0 0 42%' }}><input className="mono" aria-label="Name" list={names.length ? 'value-names' : undefined} placeholder="add a value…" value={row.name} onChange={(event) => change(at, { ...row, name: event.target.value })} /></span>
          {at < rows.length && <span className="field grow"><input className="mono" aria-label={`Value of ${row.name}`} placeholder={row.name in known ? `now ${asWritten(known[row.name])}` : 'text or JSON'} value={row.text} onChange={(event) => change(at, { ...row, text: event.target.value })} /></span>}
          {at < rows.length && <button type="button" className="btn ghost icon" aria-label={`Remove ${row.name}`} onClick={() => onChange(rows.filter((_, other) => other !== at))}><Icon name="close" size="sm" /></button>}
        </div>
      ))}
    </div>
  )
}
