/** What must I decide? */

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useEffect } from 'react'
import { Link } from 'wouter'
import { cancelWorkflow, showRun } from '../api/client'
import type { GateListed } from '../api/types'
import { DecisionForm, Deadline, type Question } from '../parts/GateCard'
import { Icon } from '../parts/Icon'
import { Title, useGates } from '../parts/Shell'
import { Command, ErrorBox, Skeleton } from '../parts/States'
import { StatusGlyph } from '../parts/Status'
import { Age, Countdown } from '../parts/Time'
import { toastProblem } from '../parts/Toasts'
import { chatAddress, runAddress, search, useParams } from '../state/address'
import { useKeys } from '../state/keyboard'
import { keys } from '../state/keys'
import { useFollow } from '../state/live'
import { called } from '../words/names'

const Markdown = lazy(() => import('../parts/Markdown'))
const nameOf = (gate: GateListed) => `${gate.run}:${gate.gate}`

export default function Gates() {
  const query = useGates()
  const [params, change] = useParams()
  const all = query.data?.gates ?? []
  const soon = all.filter((gate) => gate.deadline).sort((a, b) => a.deadline!.localeCompare(b.deadline!))
  const later = all.filter((gate) => !gate.deadline)
  const gates = [...soon, ...later]
  const wanted = params.get('gate')
  // A run's address names its node or its gate; the inbox names both exactly.
  const at = gates.findIndex((gate) => nameOf(gate) === wanted || (wanted?.startsWith(gate.run) && !gates.some((other) => nameOf(other) === wanted)))
  const isWide = matchMedia('(min-width: 721px)').matches
  const gate = gates[at] ?? (isWide && !wanted ? gates[0] : undefined)
  const first = gates[0] && nameOf(gates[0])
  useEffect(() => {
    if (!wanted && first && isWide) change({ gate: first })
  }, [wanted, first, isWide, change])
  useFollow(query.data && (gate ? { run: gate.run } : {}))
  const move = (by: number) => {
    const to = gates[Math.max(0, at) + (at < 0 ? 0 : by)]
    if (to) change({ gate: nameOf(to) })
  }
  useKeys({ j: () => move(1), k: () => move(-1) })
  return (
    <>
      <Title>Gates</Title>
      <div className="top">
        {wanted && <Link href="/gates" className="btn ghost icon only-s" aria-label="All gates"><span style={{ transform: 'rotate(180deg)' }}><Icon name="next" /></span></Link>}
        <h1>Gates</h1>
        {query.data && <span className="dim num">{all.length} open</span>}
        <span className="grow" />
        <span className="dim small hide-s"><kbd>J</kbd> <kbd>K</kbd> next, previous</span>
      </div>
      {query.isError && !query.data ? <ErrorBox error={query.error} again={() => void query.refetch()} />
        : query.isPending ? <Skeleton height="64px" />
        : !all.length && !wanted ? (
          <div className="none"><p>No open questions. A run that needs a person appears here.</p><Command>onward answer</Command></div>
        ) : (
          <div className="inbox">
            <nav className={`gl ${wanted ? 'hide-s' : ''}`} aria-label="Questions">
              <Group name="Due soon" gates={soon} at={gate} />
              <Group name="No deadline" gates={later} at={gate} />
              {!all.length && <p className="dim" style={{ padding: 24 }}>No open questions.</p>}
            </nav>
            {gate ? <Detail key={nameOf(gate)} gate={gate} /> : wanted && <Answered name={wanted} />}
          </div>
        )}
    </>
  )
}

function Group({ name, gates, at }: { name: string; gates: readonly GateListed[]; at: GateListed | undefined }) {
  if (!gates.length) return null
  return (
    <>
      <div className="h">{name}</div>
      {gates.map((gate) => (
        <Link key={nameOf(gate)} href={`/gates${search({ gate: nameOf(gate) })}`} className={gate === at ? 'on' : ''} aria-current={gate === at ? 'true' : undefined}>
          <StatusGlyph of="waiting" />
          <span className="strong" style={{ fontWeight: 500, overflowWrap: 'anywhere' }}>{gate.text}</span>
          {gate.deadline ? <b className="interrupted num" style={{ color: 'var(--c)' }}><Countdown until={gate.deadline} /></b> : <span className="dim"><Age at={gate.opened_at} sentence /></span>}
          <p>{gate.pipeline} · gate {gate.node} <span className="mono ml-1">{called({ ...gate, id: gate.run })}</span></p>
        </Link>
      ))}
    </>
  )
}

function Answered({ name }: { name: string }) {
  const run = name.split(':')[0]!
  return <div className="none"><p>This question is closed: it was answered, it expired, or its run ended.</p><Link className="btn" href={runAddress(run)}><Icon name="runs" size="sm" />Open run</Link></div>
}

function Detail({ gate }: { gate: GateListed }) {
  const cache = useQueryClient()
  const page = useQuery({ queryKey: keys.run(gate.run), queryFn: ({ signal }) => showRun(gate.run, signal) }).data
  const full = page?.gates.find((one) => one.gate === gate.gate)
  const question: Question = { ...gate, ...(full ?? {}), run: gate.run }
  const cancel = useMutation({
    mutationFn: () => cancelWorkflow(gate.run), onError: toastProblem,
    onSettled: () => void cache.invalidateQueries(),
  })
  // A question from inside a step names its call: the step is its author.
  const author = gate.gate.includes(':') ? gate.gate.split(':')[0] : null
  const hash = question.content_hash
  return (
    <section aria-label="Question" style={{ padding: '24px clamp(16px, 3vw, 32px) 32px', display: 'grid', gap: 18, alignContent: 'start' }}>
      <div className="line" style={{ alignItems: 'flex-start', gap: 16 }}>
        <div className="grow">
          <h2 style={{ fontSize: 20, lineHeight: '28px', fontWeight: 620, letterSpacing: '-.022em', overflowWrap: 'anywhere' }}>{question.text}</h2>
          <div className="kv" style={{ marginTop: 4 }}>
            <span>{gate.pipeline}{page?.pipeline_version ? ` v${page.pipeline_version}` : ''}</span>
            {page?.chat && !page.chat.startsWith('run/') && <Link href={chatAddress(page.chat)}>chat {page.chat}</Link>}
            <span className="mono">{called({ ...gate, id: gate.run })}</span><span>gate {gate.gate}</span><span>asked <Age at={gate.opened_at} sentence /></span>
            {gate.deadline ? <Deadline gate={question} /> : <span>no deadline</span>}
          </div>
        </div>
        <Link className="btn hide-s" href={runAddress(gate.run)}><Icon name="runs" size="sm" />Open run</Link>
      </div>
      {question.about && (
        <div className="quote">
          <header><Icon name="agent" size="sm" /><span>Written by {author ? <>the step <b className="strong" style={{ color: 'var(--ink)' }}>{author}</b></> : 'an agent'}. Onward did not write or check it.</span><span className="grow" />{hash && <span className="mono hide-s" title={hash}>sha {hash.slice(0, 4)}…{hash.slice(-4)}</span>}</header>
          <div className="in" tabIndex={0}><Suspense fallback={<div className="prose plain">{question.about}</div>}><Markdown text={question.about} /></Suspense></div>
        </div>
      )}
      <Next gate={question} />
      <DecisionForm gate={question} onCancelRun={() => cancel.mutate()} />
    </section>
  )
}

/** What each answer leads to, where the gate says so. */
function Next({ gate }: { gate: Question }) {
  const steps = gate.choices.filter((one) => one.to)
  if (!steps.length) return null
  return (
    <div className="quote">
      <header><Icon name="pipeline" size="sm" /><span>What happens next</span></header>
      <div className="in grid gap-1" style={{ gridTemplateColumns: 'auto 1fr', columnGap: 16 }}>
        {steps.map((one) => <div key={one.key} style={{ display: 'contents' }}><span className="strong">{one.label === one.to ? 'An answer' : one.label.replace(/^\[.\]\s*/, '')}</span><span className="mid">goes to <span className="mono">{one.to}</span></span></div>)}
      </div>
    </div>
  )
}
