/** Start a run of a registered pipeline. */

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useLocation } from 'wouter'
import { listPipelines, newKey, Problem, submitRun } from '../api/client'
import { runAddress } from '../state/address'
import { keys } from '../state/keys'
import { Dialog } from './Dialog'
import { Icon } from './Icon'
import { Command } from './States'
import { parseValue, ValueRows, type ValueRow } from './ValueRows'

export function StartRun({ onClose }: { onClose: () => void }) {
  const { data } = useQuery({ queryKey: keys.pipelines, queryFn: listPipelines })
  const cache = useQueryClient()
  const [, go] = useLocation()
  const [key] = useState(newKey)
  const [chosen, setChosen] = useState('')
  const [chat, setChat] = useState('')
  const [simulate, setSimulate] = useState(false)
  const [values, setValues] = useState<ValueRow[]>([{ name: 'user_message', text: '' }])
  const pipeline = chosen || data?.pipelines[0]?.name || ''
  const start = useMutation({
    mutationFn: () => submitRun({
      pipeline,
      inputs: Object.fromEntries(values.filter((row) => row.name && row.text).map((row) => [row.name, parseValue(row.text)])),
      ...(chat ? { chat } : {}),
      ...(simulate ? { simulation: {} } : {}),
    }, key),
    onSuccess: ({ run }) => {
      void cache.invalidateQueries({ queryKey: ['runs'] })
      onClose()
      go(runAddress(run.id))
    },
  })
  const problem = start.error instanceof Problem ? start.error : null
  return (
    <Dialog label="Start a run" onClose={onClose}>
      <form className="grid gap-4" onSubmit={(event) => { event.preventDefault(); start.mutate() }}>
        <h2>Start a run</h2>
        {data && !data.pipelines.length ? (
          <div className="grid gap-2"><p className="mid">No pipeline is registered. Register one:</p><Command>onward pipelines add hello.dot</Command></div>
        ) : (
          <>
            <label className="grid gap-1.5"><span className="strong">Pipeline</span>
              <span className="field"><select value={pipeline} onChange={(event) => setChosen(event.target.value)}>
                {data?.pipelines.map((one) => <option key={one.name} value={one.name}>{one.name} v{one.enabled}</option>)}
              </select></span>
            </label>
            <fieldset className="grid gap-1.5"><legend className="strong mb-1.5">Inputs</legend><ValueRows rows={values} onChange={setValues} /></fieldset>
            <label className="grid gap-1.5"><span className="strong">Chat <span className="dim">optional; its limit applies</span></span>
              <span className="field"><Icon name="chat" size="sm" /><input value={chat} onChange={(event) => setChat(event.target.value)} placeholder="none" /></span>
            </label>
            <label className="line"><input type="checkbox" className="box" checked={simulate} onChange={(event) => setSimulate(event.target.checked)} /><span>Simulate <span className="dim">no model requests, no costs</span></span></label>
          </>
        )}
        {problem && <p className="says-error" role="alert">{problem.message} {problem.advice}</p>}
        <div className="line justify-end">
          <button type="button" className="btn" onClick={onClose}>Back</button>
          <button type="submit" className="btn ink" disabled={!pipeline || start.isPending}><Icon name="play" size="sm" />{start.isPending ? 'Starting…' : 'Start'}</button>
        </div>
      </form>
    </Dialog>
  )
}
