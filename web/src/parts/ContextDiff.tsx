/** Which values a step changed: before and after. */

import { JsonTree } from './JsonTree'

export function ContextDiff({ before, after, changed }: { before: Record<string, unknown>; after: Record<string, unknown> | null; changed: readonly string[] }) {
  if (!after) return <><p className="dim">The step has not finished. It started with:</p><div className="tree"><JsonTree value={before} /></div></>
  return (
    <>
      {!changed.length && <p className="dim">The step changed no values.</p>}
      {changed.map((key) => (
        <div key={key} className="card" style={{ padding: '10px 12px' }}>
          <div className="mono strong mb-1" style={{ overflowWrap: 'anywhere' }}>{key}</div>
          {key in before && <div className="tree" style={{ color: 'var(--failed-ink)' }}><span className="sr">before</span><JsonTree value={before[key]} open={false} /></div>}
          {key in after ? <div className="tree"><span className="sr">after</span><JsonTree value={after[key]} /></div> : <p className="dim">removed</p>}
        </div>
      ))}
    </>
  )
}
