/** Everything about one step: what was said, asked and answered, what changed, and what it left. */

import { keepPreviousData, useQuery } from '@tanstack/react-query'
import type { LogPiece, RunPage, StepPage, TimelineRow } from '../api/types'
import { artifactAddress, showStep } from '../api/client'
import { useParams } from '../state/address'
import { keys } from '../state/keys'
import { isElsewhere, usePrinted, useReceipts } from '../state/files'
import { useMessages } from '../state/messages'
import { span } from '../words/durations'
import { bytes, costOf, money, whole } from '../words/money'
import { called } from '../words/names'
import { tone } from '../words/status'
import { Following } from './Following'
import { Icon } from './Icon'
import { JsonTree } from './JsonTree'
import { CallMessage, type CallFacts } from './Message'
import { Plain } from './Prose'
import { ErrorBox, Skeleton } from './States'
import { StatusGlyph } from './Status'
import { ContextDiff } from './ContextDiff'
import { TimeOfDay } from './Time'

const PANELS = ['conversation', 'prompt', 'output', 'context', 'calls', 'log', 'receipt'] as const
type Panel = (typeof PANELS)[number]
const named = (panel: Panel) => panel[0]!.toUpperCase() + panel.slice(1)

const seconds = (row: TimelineRow) => (row.began_at && row.ended_at ? (Date.parse(row.ended_at) - Date.parse(row.began_at)) / 1000 : null)

export function StepPanel({ page, step, onClose }: { page: RunPage; step: string; onClose: () => void }) {
  const [params, change] = useParams()
  const row = page.timeline.find((one) => one.kind === 'step' && one.step === step)
  const outline = page.steps.find((one) => one.step === step)
  const query = useQuery({
    // Read again when the step is in another state, and keep showing what is there.
    queryKey: [...keys.step(page.id, step), row?.state, outline?.attempts], placeholderData: keepPreviousData,
    queryFn: ({ signal }) => showStep(page.id, step, signal),
  })
  const shown = query.data?.step === step ? query.data : undefined
  const calls = page.timeline.filter((one) => one.kind === 'call' && one.step === step)
  const models = calls.filter((one) => /^m\d+$/.test(one.label))
  const said = params.get('panel') as Panel | null
  const panel: Panel = said && PANELS.includes(said) ? said : models.length || !shown ? 'conversation' : shown.prompt ? 'output' : shown.tries.some((one) => one.output) ? 'log' : calls.length && !shown.response ? 'calls' : 'output'
  // Of a call that failed or was lost, the row says why instead.
  const model = models.find((one) => one.state === 'finished' || one.state === 'open')?.detail
  const where = step.includes('/') ? `in branch ${step.slice(0, step.lastIndexOf('/'))}` : ''
  return (
    <section aria-label={`Step ${step}`} style={{ display: 'contents' }}>
      <div className="ph">
        <StatusGlyph of={row?.state} />
        <h2 className="cut" style={{ fontSize: 13 }}>{step.split('/').at(-1)}</h2>
        <span className="dim cut">{[shown?.handler === 'codergen' ? 'agent' : shown?.handler, where].filter(Boolean).join(' ')}</span>
        <span className="grow" />
        <button type="button" className="btn sm ghost icon" aria-label="Close the step" onClick={onClose}><Icon name="close" size="sm" /></button>
      </div>
      <div className="kv" style={{ padding: '10px 16px 0' }}>
        <span>Attempt <b>{outline?.attempts ?? 1}</b></span>
        {model && <b>{model}</b>}
        {!!row?.tokens && <span>Tokens <b className="num">{whole(row.tokens)}</b></span>}
        {!!row?.tokens && <span>Cost <b className="num">{costOf(calls, row.cost ?? 0)}</b></span>}
        {outline?.reason && <span className={tone(row?.state)} style={{ color: 'var(--c)', overflowWrap: 'anywhere' }}>{outline.reason}</span>}
      </div>
      <div className="tabs" role="tablist" style={{ padding: '0 16px', gap: 14 }}>
        {PANELS.map((one) => (
          <button key={one} type="button" role="tab" aria-selected={one === panel} className={one === panel ? 'on' : ''} onClick={() => change({ panel: one })}>
            {named(one)}{one === 'calls' && calls.length > 0 && <small>{calls.length}</small>}
          </button>
        ))}
      </div>
      {panel === 'conversation' ? <StepTalk page={page} step={step} calls={calls} />
        : query.isError && !shown ? <ErrorBox error={query.error} again={() => void query.refetch()} />
        : !shown ? <Skeleton rows={4} />
        : <div className="panel-body" tabIndex={0} role="tabpanel" aria-label={named(panel)}><PanelBody panel={panel} step={shown} page={page} calls={calls} /></div>}
    </section>
  )
}

/** What is known of a call for its message, and of the uses of tools in it. */
export function factsOf(calls: readonly TimelineRow[], step: string, call: string, number: number): CallFacts | undefined {
  const row = calls.find((one) => one.key === `${step}:${call}.${number}`)
  return row && { seconds: seconds(row), tokens: row.tokens }
}

function StepTalk({ page, step, calls }: { page: RunPage; step: string; calls: readonly TimelineRow[] }) {
  const query = useMessages(page.id)
  const messages = (query.data?.messages ?? []).filter((one) => one.step === step)
  if (query.isError && !query.data) return <ErrorBox error={query.error} again={() => void query.refetch()} />
  if (query.isPending) return <Skeleton rows={4} />
  if (!messages.length) return <div className="none"><p>No model output in this step.</p></div>
  const last = messages.at(-1)!
  return (
    <Following className="panel-body" of={query.data} grows={last.state === 'streaming' && page.status === 'running'}>
      {messages.map((one) => (
        <CallMessage key={one.id} said={one.state === 'streaming' && page.status !== 'running' ? { ...one, state: 'interrupted' } : one}
          facts={factsOf(calls, step, one.call, one.number)} tools={calls.filter((call) => call.key.startsWith(`${step}:${one.call}.t`))} />
      ))}
    </Following>
  )
}

function PanelBody({ panel, step, page, calls }: { panel: Panel; step: StepPage; page: RunPage; calls: readonly TimelineRow[] }) {
  const none = (text: string) => <p className="dim">{text}</p>
  switch (panel) {
    case 'prompt':
      return <>{step.command && <Plain text={step.command} />}{step.question && <Plain text={step.question} />}{step.prompt ? <Plain text={step.prompt} /> : !step.command && !step.question && none('This step has no prompt.')}</>
    case 'output':
      return (
        <>
          {step.response ? <Response text={step.response} /> : none(step.finished_at ? 'This step has no text.' : 'Nothing yet.')}
          {step.notes && step.notes !== step.response && <Plain text={step.notes} />}
          {step.artifacts.map((one) => (
            <a key={one.id} className="line" href={artifactAddress(page.id, one.id)}><Icon name="file" size="sm" /><span className="grow cut">{one.name}</span><span className="dim num">{bytes(one.size_bytes)}</span></a>
          ))}
          {step.next && <p className="dim">Then {step.next.to}, by {step.next.reason}.</p>}
        </>
      )
    case 'context':
      return <ContextDiff before={step.context_before} after={step.context_after} changed={step.changed} />
    case 'calls':
      return calls.length ? <Calls calls={calls} /> : none('This step made no calls.')
    case 'log':
      return <Log page={page} step={step} />
    default:
      return <Receipt page={page} step={step} />
  }
}

function Response({ text }: { text: string }) {
  try {
    return <div className="tree"><JsonTree value={JSON.parse(text)} /></div>
  } catch {
    return <Plain text={text} />
  }
}

function Calls({ calls }: { calls: readonly TimelineRow[] }) {
  return (
    <div className="grid gap-2">
      {calls.map((call) => (
        <div key={call.key} className="tool">
          <header style={{ cursor: 'default' }}>
            <Icon name={/^m\d+$/.test(call.label) ? 'model' : 'tool'} size="sm" /><b className="grow" style={{ overflowWrap: 'anywhere' }}>{call.label.slice(0, 300)}</b>
            <span className="num" style={{ whiteSpace: 'nowrap' }}>{seconds(call) === null ? (call.state === 'interrupted' ? 'lost' : '') : span(seconds(call)!)}</span><StatusGlyph of={call.state} />
          </header>
          {(call.tokens > 0 || call.detail) && <footer className="num"><span className="grow cut">{call.detail}</span>{call.tokens > 0 && <span>{whole(call.tokens)} tokens{call.cost ? ` · ${money(call.cost)}` : ''}</span>}</footer>}
        </div>
      ))}
    </div>
  )
}

/** The receipt as it is on disk; who may not read files sees where it is. */
function Receipt({ page, step }: { page: RunPage; step: StepPage }) {
  const query = useReceipts(page)
  const receipt = query.data?.receipts.find((one) => one.step_id === step.step)
  const found = query.data?.found.find((one) => step.receipt?.endsWith(one.file))
  if (query.isLoading) return <Skeleton rows={4} />
  if (!step.receipt && !receipt) return <p className="dim">{step.finished_at ? 'This step has no receipt on the server’s machine.' : 'A finished step leaves a receipt. This step has not finished.'}</p>
  return (
    <>
      {found && <p className="interrupted" role="alert" style={{ color: 'var(--c)', overflowWrap: 'anywhere' }}>{found.says}</p>}
      {step.receipt && <><p className="mid">A file on the server’s machine:</p><Plain text={step.receipt} /></>}
      {receipt && <div className="tree"><JsonTree value={receipt} /></div>}
      {query.isError && <p className="dim">{query.error.message}</p>}
    </>
  )
}

const STREAMS: Record<string, string> = { stderr: 'to standard error', log: 'logged', traceback: 'traceback' }
type Piece = Pick<LogPiece, 'stream' | 'text'>

/** What was printed, try by try. Who may not read files sees the last lines, which are stored with the run. */
function Log({ page, step }: { page: RunPage; step: StepPage }) {
  const isOpen = page.timeline.some((row) => row.kind === 'step' && row.step === step.step && row.state === 'open')
  const query = usePrinted(page.id, step.step, step.tries.length, isOpen)
  if (!step.tries.length) return <p className="dim">This step has not started.</p>
  const printed = query.data?.pieces
  const last = step.tries.at(-1)
  const known = (one: StepPage['tries'][number]): Piece[] => [
    { stream: 'stdout', text: one.output?.lines.map((line) => line.text).join('\n') ?? '' },
    { stream: 'log', text: one === last ? step.log.join('\n') : '' }, { stream: 'traceback', text: one.output?.traceback ?? '' },
  ]
  return (
    <>
      {isElsewhere(query.error) && <p className="dim">The last lines are shown: {query.error.message}</p>}
      {query.isError && !isElsewhere(query.error) && <ErrorBox error={query.error} again={() => void query.refetch()} />}
      {query.data?.is_cut && <p className="dim">Only the end is shown. Full output: <span className="mono">onward logs {called(page)} {step.step}</span></p>}
      {step.tries.map((one) => {
        const pieces = (printed?.filter((piece) => piece.attempt === one.attempt && piece.number === one.number) ?? known(one)).filter((piece) => piece.text.trim())
        return (
          <div key={`${one.attempt}.${one.number}`} className="grid gap-1.5">
            <div className="line small mid"><StatusGlyph of={one.outcome ?? (isOpen && one === last ? 'running' : 'interrupted')} /><b className="strong">Attempt {one.attempt}{one.number > 1 ? `, try ${one.number}` : ''}</b><span className="grow cut">{one.worker}</span>{one.started_at && <TimeOfDay at={one.started_at} />}</div>
            {one.reason && <p className="small" style={{ overflowWrap: 'anywhere' }}>{one.reason}</p>}
            {joined(pieces).map((piece, at) => <div key={at}>{STREAMS[piece.stream] && <p className="dim small">{STREAMS[piece.stream]}</p>}<Plain text={piece.text.trimEnd()} /></div>)}
            {!pieces.length && <p className="dim small">{isOpen && one === last ? 'No output yet.' : 'No output.'}</p>}
          </div>
        )
      })}
    </>
  )
}

/** Pieces of one stream that follow each other are one. */
function joined(pieces: readonly Piece[]): Piece[] {
  const all: Piece[] = []
  for (const piece of pieces) {
    const tail = all.at(-1)
    if (tail?.stream === piece.stream) all[all.length - 1] = { stream: tail.stream, text: tail.text + piece.text }
    else all.push(piece)
  }
  return all
}
