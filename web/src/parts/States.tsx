/** What a page shows when it has nothing yet, nothing at all, or an error. */

import { Component, useEffect, useState, type ReactNode } from 'react'
import { Problem } from '../api/client'
import { Icon } from './Icon'
import { StatusGlyph } from './Status'

/** Rows of the height that will be there, after 150 ms; sooner nothing, so that nothing flickers. */
export function Skeleton({ rows = 8, height = 'var(--row)' }: { rows?: number; height?: string }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 150)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div role="status" aria-label="Loading">
      {late && Array.from({ length: rows }, (_, row) => (
        <div key={row} className="line px-6" style={{ height, borderBottom: '1px solid var(--line)', gap: 24, opacity: 1 - row / (rows + 2) }}>
          <span className="bone" style={{ width: 80 }} />
          <span className="bone" style={{ width: 120 }} />
          <span className="bone grow" style={{ maxWidth: 200 + ((row * 67) % 160) }} />
        </div>
      ))}
    </div>
  )
}

/** The server's sentence, its code, and another try. */
export function ErrorBox({ error, again }: { error: unknown; again?: () => void }) {
  const problem = error instanceof Problem ? error : null
  return (
    <div className="none" role="alert">
      <div className="line"><StatusGlyph of="failed" /><span className="strong text-ink">{problem?.message ?? 'This part of the page failed.'}</span></div>
      {problem?.advice && <p>{problem.advice}</p>}
      <p className="small dim mono">{problem ? [problem.code, problem.request].filter(Boolean).join(' · ') : String(error)}</p>
      {again && <button type="button" className="btn" onClick={again}><Icon name="retry" size="sm" />Try again</button>}
    </div>
  )
}

export function Gone() {
  return <div className="none"><div className="line"><StatusGlyph of="cancelled" /><span className="strong text-ink">This run was deleted.</span></div></div>
}

export function Empty({ children }: { children: ReactNode }) {
  return <div className="none">{children}</div>
}

/** A command to copy. */
export function Command({ children }: { children: string }) {
  const [copied, setCopied] = useState(false)
  return (
    <div className="cmd">
      <span className="dim">$</span>
      <span className="grow">{children}</span>
      <button
        type="button" className="btn ghost sm icon" aria-label={copied ? 'Copied' : `Copy ${children}`}
        onClick={() => void navigator.clipboard?.writeText(children).then(() => setCopied(true))}
      >
        <Icon name={copied ? 'check' : 'copy'} size="sm" />
      </button>
    </div>
  )
}

/** An error inside a page stays inside it: navigation still works. */
export class Boundary extends Component<{ children: ReactNode; on?: string }, { error: unknown }> {
  override state: { error: unknown } = { error: null }
  static getDerivedStateFromError(error: unknown) {
    return { error }
  }
  override componentDidUpdate(before: { on?: string }) {
    if (this.state.error && before.on !== this.props.on) this.setState({ error: null })
  }
  override render() {
    return this.state.error ? <ErrorBox error={this.state.error} again={() => this.setState({ error: null })} /> : this.props.children
  }
}
