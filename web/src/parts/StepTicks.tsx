/** The steps of a run as ticks along its path; in words "8 of 14 steps". */

import type { TickShown } from '../api/types'
import { tickClass } from '../words/status'

export function StepTicks({ ticks, status, finished, planned, over = false }: {
  ticks: readonly TickShown[]
  status: string
  finished: number
  planned: number
  over?: boolean
}) {
  const all = Math.max(planned, finished, ticks.length)
  return (
    <>
      <span className="ticks grow" aria-hidden="true">
        {ticks.map((tick, index) => <i key={index} className={tickClass(tick.state, status)} />)}
      </span>
      <span className="num dim small" aria-label={over ? `${finished} steps` : `${finished} of ${all} steps`}>
        {over ? finished : `${finished} / ${all}`}
      </span>
    </>
  )
}
