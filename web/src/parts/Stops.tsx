/** Why the run stopped, each time: for how long, what was kept, who resumed it. */

import type { StopShown } from '../api/types'
import { span } from '../words/durations'
import { counted } from '../words/money'
import { stopTone } from '../words/status'
import { StatusGlyph } from './Status'
import { TimeOfDay } from './Time'

export function Stops({ stops, again }: { stops: readonly StopShown[]; again: number }) {
  if (!stops.length) return null
  return (
    <section className="stops" aria-label="Stops">
      <div><span className="strong">Stops</span> <span className="dim ml-1">{counted(stops.length, 'stop').replace(/ stops?$/, '')}{again ? `, and ${counted(again, 'answer')} ${again === 1 ? 'is' : 'are'} asked for again` : ', and nothing was done twice'}</span></div>
      {[...stops].reverse().map((stop) => (
        <div key={stop.seq} className="stop">
          <StatusGlyph of={stopTone(stop.reason)} />
          <span className="strong" style={{ fontWeight: 500 }}>{stop.says}</span>
          <span className="dim num"><TimeOfDay at={stop.at} /> · {stop.ended_at ? span((Date.parse(stop.ended_at) - Date.parse(stop.at)) / 1000) : 'now'}</span>
          <p>{stop.kept}{stop.by ? ` Resumed by ${stop.by}.` : ''}</p>
        </div>
      ))}
    </section>
  )
}
