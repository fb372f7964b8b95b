/** What to do when nothing has run yet. */

import { useState } from 'react'
import { useMe, useRole } from '../state/me'
import { Icon } from './Icon'
import { StartRun } from './StartRun'
import { Title } from './Shell'
import { Command } from './States'

export function FirstStart() {
  const me = useMe()
  const may = useRole('operator')
  const [starts, setStarts] = useState(false)
  return (
    <>
      <Title>Runs</Title>
      <div className="top"><h1>Runs</h1></div>
      <div className="start">
        <div className="in">
          <div className="grid gap-2">
            <h2 style={{ fontSize: 28, lineHeight: '36px', fontWeight: 620, letterSpacing: '-.03em' }}>Nothing has run yet.</h2>
            <p className="mid text-lg">Start one, kill it while it works, and resume it here. It continues after the last finished step.</p>
          </div>
          <ol className="steps">
            <li>
              <span className="nr ok"><Icon name="check" size="xs" /></span>
              <b className="strong">The server is running</b>
              <span className="dim num">{[me.version && `onward ${me.version}`, me.database].filter(Boolean).join(' · ')}</span>
            </li>
            <li>
              <span className="nr">1</span>
              <b className="strong">Register a pipeline</b>
              <span />
              <Command>onward pipelines add hello.dot</Command>
              <p>It is checked, not executed. The same source keeps its version.</p>
            </li>
            <li>
              <span className="nr">2</span>
              <b className="strong">Connect a model, or simulate one</b>
              <span className="tag">optional</span>
              <Command>export OPENAI_API_KEY=…</Command>
              <p>Without a key, runs can be simulated: no requests, no costs.</p>
            </li>
            <li>
              <span className="nr">3</span>
              <b className="strong">Start a run</b>
              {may && <button type="button" className="btn ink" onClick={() => setStarts(true)}><Icon name="plus" size="sm" />Start run</button>}
            </li>
          </ol>
        </div>
      </div>
      {starts && <StartRun onClose={() => setStarts(false)} />}
    </>
  )
}
