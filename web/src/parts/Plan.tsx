/** The agents that a chat's run has planned, how far they are, and what the chat has spent. */

import { useQuery } from '@tanstack/react-query'
import { Link } from 'wouter'
import { listLimits } from '../api/client'
import type { ChatPage, ChatRunShown } from '../api/types'
import { runAddress } from '../state/address'
import { keys } from '../state/keys'
import { money, whole } from '../words/money'
import { called } from '../words/names'
import { Icon } from './Icon'
import { Meter } from './Meter'
import { Status, StatusGlyph } from './Status'
import { Age } from './Time'

interface Line {
  name: string
  state: string
  note: string
}

/** Planned agents in their order; what else the run did or does is between them. */
function lines(run: ChatRunShown): Line[] {
  const ticks = run.ticks.filter((tick) => !['start', 'exit'].includes(tick.step))
  const agents = new Set(run.planned_agents)
  const seen = new Set<string>()
  const found: Line[] = []
  for (const tick of ticks) {
    const name = tick.step.replace(/#\d+$/, '')
    const isShown = agents.has(name) || ['open', 'waiting', 'interrupted', 'failed'].includes(tick.state)
    if (!isShown) continue
    const note = { interrupted: run.reason === 'limit' ? 'held' : 'cut off', waiting: 'you choose', failed: 'failed', open: 'works' }[tick.state] ?? ''
    if (seen.has(name)) {
      const at = found.findIndex((one) => one.name === name)
      found[at] = { name, state: tick.state, note }
      continue
    }
    seen.add(name)
    found.push({ name, state: tick.state, note })
  }
  for (const name of run.planned_agents) if (!seen.has(name)) found.push({ name, state: run.agents_left.includes(name) ? 'planned' : 'finished', note: '' })
  // In the order of the plan; what is not in the plan stays after what it came after.
  const place = new Map(run.planned_agents.map((name, at) => [name, at]))
  let before = -1
  const ranked = found.map((line) => ({ line, at: (before = place.get(line.name) ?? before + 0.5) }))
  return ranked.sort((a, b) => a.at - b.at).map(({ line }) => line)
}

/** What that cost; nothing where no price is known. */
const spentWords = (micro: number) => (micro ? ` · ${money(micro)}` : '')

export function Plan({ page, run, onClose }: { page: ChatPage; run: ChatRunShown; onClose: () => void }) {
  const limits = useQuery({ queryKey: keys.limits, queryFn: ({ signal }) => listLimits(signal) }).data
  const scope = limits?.scopes.find((one) => one.scope === `chat/${page.chat}`)
  const base = limits?.scopes.find((one) => one.scope === 'chat')
  const spent = scope?.tokens.spent ?? run.tokens
  const limit = scope?.tokens.limit ?? base?.tokens.limit ?? null
  return (
    <aside className="plan" aria-label="Plan">
      <div className="line">
        <h2 className="strong" style={{ fontSize: 13 }}>Plan</h2>
        {run.intent && <span className="tag">{run.intent}</span>}
        {run.scope && <span className="tag">{run.scope}</span>}
        <span className="grow" />
        <span className="dim small">{run.pipeline}{run.pipeline_version ? ` v${run.pipeline_version}` : ''}</span>
        <button type="button" className="btn ghost sm icon only-s" aria-label="Close the plan" onClick={onClose}><Icon name="close" size="sm" /></button>
      </div>
      <ol className="pl">
        {lines(run).map((one) => (
          <li key={one.name} className={one.state === 'planned' ? 'planned' : ''}><StatusGlyph of={one.state} /><span className="cut">{one.name}</span><em>{one.note}</em></li>
        ))}
      </ol>
      <div className="part">
        <div className="line"><span className="strong grow">Tokens of this chat</span><span className="num mid">{whole(spent)}</span></div>
        <Meter spent={spent} reserved={scope?.tokens.reserved ?? 0} limit={limit} isStopped={run.reason === 'limit'} />
        <span className="dim num small">{limit ? `of ${whole(limit)}` : 'no limit'}{run.limit?.measure === 'tokens' && run.reason === 'limit' ? ` · the next call may need ${whole(run.limit.wanted)}` : spentWords(scope?.cost_micro.spent ?? run.cost)}</span>
      </div>
      <div className="part">
        <span className="strong">{page.runs.length > 1 ? 'Runs' : 'Run'}</span>
        {page.runs.slice(0, 6).map((one) => (
          <Link key={one.id} className="line mid" href={runAddress(one.id)}>
            <span className="mono cut">{called(one)}</span><Status status={one.status} word=" " /><span className="dim grow"><Age at={one.created_at} sentence /></span><Icon name="next" size="xs" />
          </Link>
        ))}
      </div>
    </aside>
  )
}
