/** A question: what is asked, what can be answered, until when, and what is taken then. Nothing has the focus. */

import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { answerGate, newKey, Problem, type Decision } from '../api/client'
import type { ChoiceOffered, GateListed } from '../api/types'
import { useKeys } from '../state/keyboard'
import { keys } from '../state/keys'
import { useOffline } from '../state/live'
import { useRole } from '../state/me'
import { ConfirmDialog } from './Dialog'
import { Icon } from './Icon'
import { StatusGlyph } from './Status'
import { Countdown } from './Time'
import { toast, toastProblem } from './Toasts'

/** What both lists and runs know of a question. */
export type Question = Omit<GateListed, 'display_id' | 'pipeline'> & {
  default?: string | null
  on_timeout?: string
  content_hash?: string
}

const YES = new Set(['y', 'yes', 'approve', 'ok'])
const NO = new Set(['n', 'no', 'reject'])

/** Whether any text is an answer. */
const asksForWords = (gate: Question) => gate.type === 'freeform'

/** Whether a question asks for yes or no, by what it offers. */
export function asksYesNo(gate: Question): boolean {
  if (asksForWords(gate)) return false
  const words = gate.choices.map((one) => one.label.replace(/^\[.\]\s*/, '').toLowerCase())
  return gate.type === 'yes_no' || gate.type === 'confirmation' || (words.length <= 2 && words.some((one) => YES.has(one)) && words.every((one) => YES.has(one) || NO.has(one)))
}

const plain = (label: string) => label.replace(/^\[.\]\s*/, '')
const colours = (choice: ChoiceOffered) =>
  (Array.isArray(choice.data.colors) ? choice.data.colors : []).filter((one): one is string => typeof one === 'string' && /^#[0-9a-f]{3,8}$/i.test(one)).slice(0, 6)
const describes = (choice: ChoiceOffered) => (typeof choice.data.description === 'string' ? choice.data.description : '')

const DONE: Record<string, string> = { approve: 'Approved', reject: 'Rejected' }

/** Send a decision with what was shown. One that was made elsewhere is said, and everything is read again. */
export function useDecision(gate: Question) {
  const cache = useQueryClient()
  const [key, setKey] = useState(newKey)
  return useMutation({
    mutationFn: (decision: Omit<Decision, 'gate'>) =>
      answerGate(gate.run, { gate: gate.gate, ...(gate.content_hash ? { content_hash: gate.content_hash } : {}), ...decision }, key),
    retry: (count, error) => error instanceof Problem && error.status === 0 && count < 2,
    onSuccess: (_, decision) => toast(`${DONE[decision.verdict ?? ''] ?? 'Answered'}: ${gate.text.slice(0, 80)}`, 'completed'),
    onError: (error) => {
      if (error instanceof Problem && error.code === 'gate_changed') toast('The question changed. Read it again.')
      else toastProblem(error)
    },
    onSettled: () => {
      setKey(newKey())
      for (const key of [keys.gates, keys.stats, keys.run(gate.run)]) void cache.invalidateQueries({ queryKey: key })
      void cache.invalidateQueries({ queryKey: ['chat'] })
      void cache.invalidateQueries({ queryKey: ['runs'] })
    },
  })
}

export function Deadline({ gate }: { gate: Question }) {
  if (!gate.deadline) return null
  const taken = gate.choices.find((one) => one.key === gate.default)
  const says = gate.on_timeout === 'reject' ? 'rejects in' : taken && gate.on_timeout !== 'none' ? `takes ${plain(taken.label)} in` : 'until'
  return <span className="timer"><Icon name="clock" size="sm" />{says} <Countdown until={gate.deadline} /></span>
}

export function GateCard({ gate, bare = false }: { gate: Question; bare?: boolean }) {
  const mayApprove = useRole('approver')
  const offline = useOffline()
  const isWords = asksForWords(gate)
  const shown = gate.choices.filter((one) => describes(one) || colours(one).length)
  const isCards = !isWords && (shown.length > 0 || (gate.choices.length > 2 && !asksYesNo(gate)))
  const cards = shown.length ? shown : gate.choices
  const others = isCards ? gate.choices.filter((one) => !cards.includes(one)) : []
  const first = cards.find((one) => one.key === gate.default) ?? cards[0]
  const [chosen, setChosen] = useState(first?.key ?? '')
  const [note, setNote] = useState('')
  const { mutate, isPending } = useDecision(gate)
  useEffect(() => setChosen(first?.key ?? ''), [gate.gate, gate.run, first?.key])
  const why = offline ?? (mayApprove ? undefined : 'Only an approver can answer.')
  const off = isPending || !!why
  const send = (decision: Omit<Decision, 'gate'>) => mutate({ ...decision, ...(note ? { text: note } : {}) })
  const choice = cards.find((one) => one.key === chosen)
  return (
    <section className="gate" aria-label="Question" aria-live="polite">
      {!bare && (
        <div className="line" style={{ flexWrap: 'wrap' }}>
          <StatusGlyph of="waiting" />
          <h2 className="grow" style={{ flexBasis: 200 }}>{gate.text}</h2>
          <Deadline gate={gate} />
        </div>
      )}
      {!bare && gate.about && <div className="quote"><header><Icon name="agent" size="sm" /><span>Written by {gate.gate.includes(':') ? `the step ${gate.gate.split(':')[0]}` : 'an agent'}. Onward did not write or check it.</span></header><div className="in plain small" style={{ maxHeight: 160 }}>{gate.about}</div></div>}
      {isCards && (
        <div className="opts" role="radiogroup" aria-label="Choices">
          {cards.map((one) => (
            <button key={one.key} type="button" role="radio" aria-checked={one.key === chosen} className={`opt ${one.key === chosen ? 'on' : ''}`} disabled={off && !mayApprove} onClick={() => setChosen(one.key)}>
              {colours(one).length > 0 && <span className="sw" aria-hidden="true">{colours(one).map((colour, at) => <i key={at} style={{ background: colour }} />)}</span>}
              <span className="line"><b className="strong grow">{plain(one.label)}</b><kbd>{one.key}</kbd></span>
              {describes(one) && <p>{describes(one)}</p>}
            </button>
          ))}
        </div>
      )}
      {isWords && <textarea className="ta" aria-label="Your answer" placeholder="Your answer" disabled={!mayApprove} value={note} onChange={(event) => setNote(event.target.value)} />}
      <div className="line" style={{ flexWrap: 'wrap' }}>
        {isWords ? <span className="grow dim small">Answer with any text.</span>
          : <span className="field grow" style={{ flexBasis: 180 }}><input aria-label="Note" placeholder="Add a note for the agents (optional)" disabled={!mayApprove} value={note} onChange={(event) => setNote(event.target.value)} /></span>}
        {isCards ? (
          <>
            {others.map((one) => <button key={one.key} type="button" className="btn" disabled={off} title={why} onClick={() => send({ choice: one.key })}>{plain(one.label)} <kbd className="hide-s">{one.key}</kbd></button>)}
            <button type="button" className="btn ink" disabled={off || !choice} title={why} onClick={() => choice && send({ choice: choice.key })}>{isPending ? 'Answering…' : `Choose ${choice ? plain(choice.label) : ''}`}</button>
          </>
        ) : isWords ? (
          <button type="button" className="btn ink" disabled={off || !note.trim()} title={why ?? (note.trim() ? undefined : 'Write an answer first.')} onClick={() => mutate({ text: note.trim() })}>{isPending ? 'Answering…' : 'Answer'}</button>
        ) : asksYesNo(gate) || !gate.choices.length ? (
          <>
            <button type="button" className="btn" disabled={off} title={why} onClick={() => send({ verdict: 'reject' })}><Icon name="close" size="sm" />Reject</button>
            <button type="button" className="btn ink" disabled={off} title={why} onClick={() => send({ verdict: 'approve' })}><Icon name="check" size="sm" />Approve</button>
          </>
        ) : (
          gate.choices.map((one, at) => <button key={one.key} type="button" className={`btn ${at === 0 ? 'ink' : ''}`} disabled={off} title={why} onClick={() => send({ choice: one.key })}>{plain(one.label)} <kbd className="hide-s">{one.key}</kbd></button>)
        )}
      </div>
      {!mayApprove && <p className="dim small">Only an approver can answer.</p>}
    </section>
  )
}

/** Approve, Reject and Cancel run with feedback, in full: for the inbox. `A` and `R` choose, then Enter confirms. */
export function DecisionForm({ gate, onCancelRun }: { gate: Question; onCancelRun: () => void }) {
  const mayApprove = useRole('approver')
  const mayOperate = useRole('operator')
  const offline = useOffline()
  const [note, setNote] = useState('')
  const [armed, setArmed] = useState<'approve' | 'reject' | null>(null)
  const [asks, setAsks] = useState(false)
  const { mutate, isPending } = useDecision(gate)
  const yesNo = asksYesNo(gate) || (!gate.choices.length && !asksForWords(gate))
  const why = offline ?? (mayApprove ? undefined : 'Only an approver can answer.')
  useKeys(yesNo && !why ? {
    a: () => setArmed('approve'),
    r: () => setArmed('reject'),
    Enter: () => armed && decide(armed),
    Escape: () => setArmed(null),
  } : {})
  const decide = (verdict: 'approve' | 'reject') => {
    if (verdict === 'reject' && !note.trim()) {
      setArmed(null)
      document.getElementById('feedback')?.focus()
      return toast('Feedback is required to reject.', 'paused')
    }
    mutate({ verdict, ...(note ? { text: note } : {}) })
  }
  const ring = (is: boolean) => (is ? { outline: '2px solid var(--focus)', outlineOffset: 2 } : undefined)
  const cancel = mayOperate && <button type="button" className="btn lg danger" disabled={!!offline} onClick={() => setAsks(true)}>Cancel run…</button>
  const confirm = asks && <ConfirmDialog title="Cancel this run?" yes="Cancel run" onClose={() => setAsks(false)} onYes={onCancelRun}>It ends for good and cannot be resumed. The question is withdrawn.</ConfirmDialog>
  if (!yesNo) return <><GateCard gate={gate} bare /><div className="line justify-end">{cancel}</div>{confirm}</>
  return (
    <>
      <label className="grid gap-1.5"><span className="strong">Feedback <span className="dim" style={{ fontWeight: 450 }}>goes to the next step; required to reject</span></span>
        <textarea id="feedback" className="ta" value={note} onChange={(event) => setNote(event.target.value)} />
      </label>
      <div className="line" style={{ flexWrap: 'wrap' }}>
        <button type="button" className="btn ink lg" style={ring(armed === 'approve')} disabled={isPending || !!why} title={why} onClick={() => decide('approve')}><Icon name="check" size="sm" />{armed === 'approve' ? 'Enter approves' : 'Approve'} <kbd className="hide-s">A</kbd></button>
        <button type="button" className="btn lg" style={ring(armed === 'reject')} disabled={isPending || !!why} title={why} onClick={() => decide('reject')}><Icon name="close" size="sm" />{armed === 'reject' ? 'Enter rejects' : 'Reject'} <kbd className="hide-s">R</kbd></button>
        <span className="grow" />
        {cancel}
      </div>
      {!mayApprove && <p className="dim small">Only an approver can answer.</p>}
      {confirm}
    </>
  )
}
