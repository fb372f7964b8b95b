/** Why the run stopped, each time: for how long, what was kept, who resumed it. */

import type { RunPage, StopShown } from '../api/types'
import { span } from '../words/durations'
import { counted } from '../words/money'
import { stopTone } from '../words/status'
import { StatusGlyph } from './Status'
import { TimeOfDay } from './Time'

/** What they cost, where a model was asked. */
function says({ again, answers }: RunPage['kept']): string {
  if (again) return `, and ${counted(again, 'answer')} ${again === 1 ? 'is' : 'are'} requested again`
  return answers ? ', and no answer is requested again' : ''
}

export function Stops({ stops, kept }: { stops: readonly StopShown[]; kept: RunPage['kept'] }) {
  if (!stops.length) return null
  return (
    <section className="stops" aria-label="Stops">
      <div><span className="strong">Stops</span> <span className="dim ml-1">{counted(stops.length, 'stop').replace(/ stops?$/, '')}{says(kept)}</span></div>
      {[...stops].reverse().map((stop) => (
        <div key={stop.seq} className="stop">
          <StatusGlyph of={stopTone(stop.reason)} />
          <span className="strong" style={{ fontWeight: 500 }}>{stop.says}</span>
          <span className="dim num"><TimeOfDay at={stop.at} /> · {stop.ended_at ? span((Date.parse(stop.ended_at) - Date.parse(stop.at)) / 1000) : 'now'}</span>
          <p>{stop.kept}{stop.by ? ` Resumed by ${stop.by.replace(/^token:/, '')}.` : ''}</p>
        </div>
      ))}
    </section>
  )
}
