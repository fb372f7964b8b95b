/** The one card of a stopped run: why it stopped, what is kept, and what can be done. */

import { useState, type ReactNode } from 'react'
import { useLocation } from 'wouter'
import { cancelWorkflow, dismissRun, forkRun, newKey, resumeWorkflow, sendMessage } from '../api/client'
import type { BannerShown, MessageSent, RunState } from '../api/types'
import { runAddress } from '../state/address'
import { useOffline } from '../state/live'
import { useRole } from '../state/me'
import { whole } from '../words/money'
import { ActionButton, useAct } from './ActionButton'
import { ConfirmDialog } from './Dialog'
import { LimitsPanel } from './LimitsPanel'
import { StatusGlyph } from './Status'
import { Countdown } from './Time'

const TONES: Record<string, 'interrupted' | 'failed' | 'paused'> = { amber: 'interrupted', red: 'failed', slate: 'paused' }
/** The actions of a step in doubt: none is suggested before another. */
const CHOICES: Record<string, string> = { retry: 'Retry', skip: 'Skip', continue: 'Continue', abort: 'Abort' }

export function Banner({ tone, title, line, children, panel }: {
  tone: 'interrupted' | 'failed' | 'paused' | 'queued'
  title: ReactNode
  line: ReactNode
  children?: ReactNode
  panel?: ReactNode
}) {
  return (
    <section className={`banner ${tone}`} role="status" aria-label="Recovery">
      <StatusGlyph of={tone} />
      <div>
        <h2>{title}</h2>
        <p>{line}</p>
      </div>
      <div className="acts">{children}</div>
      {panel}
    </section>
  )
}

export function BannerSlot({ banner, run, startOpen = false }: { banner: BannerShown | null; run: RunState & { user_message?: string | null }; startOpen?: boolean }) {
  // Another stop of the same run begins with a closed panel.
  return banner && <Slot key={`${run.id}/${banner.kind}/${run.stops.at(-1)?.seq}`} banner={banner} run={run} startOpen={startOpen} />
}

function Slot({ banner, run, startOpen }: { banner: BannerShown; run: RunState & { user_message?: string | null }; startOpen: boolean }) {
  const [open, setOpen] = useState(startOpen && banner.kind === 'limit')
  const [texts, setTexts] = useState<Record<string, string>>({})
  const isLimit = banner.kind === 'limit'
  // The server says whether the limits leave room: in the banner, and at once when they are saved here.
  const said = banner.actions.join()
  const [saved, setSaved] = useState<{ said: string; hasRoom: boolean } | null>(null)
  const hasRoom = saved?.said === said ? saved.hasRoom : banner.actions.includes('resume')
  const may = useRole('operator')
  const title = banner.kind === 'rate_limit' && banner.until
    ? <>The provider asks to wait. Resumes by itself in <Countdown until={banner.until} />.</>
    : banner.title
  return (
    <Banner
      tone={TONES[banner.colour] ?? 'interrupted'} title={title} line={banner.line}
      panel={isLimit && open && <LimitsPanel run={run} stop={banner.limit} texts={texts} setTexts={setTexts} onSaved={(room) => setSaved({ said, hasRoom: room })} />}
    >
      {may && banner.actions.map((action) => {
        switch (action) {
          case 'raise_limit':
            // Open, it only hides the panel: it must not look as if it saved what was written there.
            return (
              <button key={action} type="button" className={`btn ${hasRoom || open ? '' : 'amber'}`} aria-expanded={open} onClick={() => setOpen(!open)}>
                {open ? 'Hide limits' : <>Increase limit &amp; resume</>}
              </button>
            )
          case 'resume':
            return isLimit ? null : <Resume key={action} run={run} className={banner.colour === 'amber' ? 'btn amber' : 'btn'} />
          case 'try_now':
            return <ActionButton key={action} className="btn" busy="Trying…" act={resume(run)}>Try now</ActionButton>
          case 'fresh':
            return <Fresh key={action} run={run} />
          case 'open_log':
            return <Go key={action} to={runAddress(run.id, { step: banner.step, panel: 'log' })}>Open log</Go>
          case 'fork':
            return <Go key={action} to={runAddress(run.id, { fork: 'choose' })}>Fork…</Go>
          case 'dismiss':
            return null
          default:
            return CHOICES[action] && (
              <ActionButton key={action} className={`btn ${action === 'abort' ? 'danger' : ''}`} act={{ run: run.id, post: (key) => resumeWorkflow(run.id, { action, head: run.head, key }) }}>
                {CHOICES[action]}
              </ActionButton>
            )
        }
      })}
      {may && isLimit && hasRoom && <ActionButton className="btn green" busy="Resuming…" act={resume(run)}>Resume pipeline</ActionButton>}
      {may && banner.actions.includes('dismiss') && (
        <ActionButton className="btn ghost" busy="Dismissing…" act={{ run: run.id, post: () => dismissRun(run.id) }}>Dismiss</ActionButton>
      )}
    </Banner>
  )
}

const resume = (run: RunState) => ({ run: run.id, post: (key: string) => resumeWorkflow(run.id, { head: run.head, key }) })

/** Whether a resume would be accepted now: a limit that leaves no room has to be raised first. */
export const canResume = (run: RunState) =>
  run.recoverable && !run.step_in_doubt && !(run.banner?.kind === 'limit' && !run.banner.actions.includes('resume'))

/** Resume, with the retry icon: exactly where the server says that the run is recoverable. */
export function Resume({ run, className = 'btn' }: { run: RunState; className?: string }) {
  const off = canResume(run) ? undefined : 'Increase the limit first.'
  return <ActionButton className={className} icon="retry" busy="Resuming…" off={off} act={resume(run)}>Resume</ActionButton>
}

function Go({ to, children }: { to: string; children: ReactNode }) {
  const [, go] = useLocation()
  return <button type="button" className="btn" onClick={() => go(to)}>{children}</button>
}

/** A new start: in a chat its message again, elsewhere a fork at the creation. It asks once. */
function Fresh({ run }: { run: RunState & { user_message?: string | null } }) {
  const [asks, setAsks] = useState(false)
  const [, go] = useLocation()
  const offline = useOffline()
  const said = run.user_message ?? (typeof run.context.user_message === 'string' ? run.context.user_message : null)
  const inChat = !!run.chat && !run.chat.startsWith('run/') && said
  const { mutate, isPending } = useAct({
    run: run.id,
    post: async (key): Promise<unknown> => {
      if (inChat) return sendMessage({ chat: run.chat, text: said, fresh: true }, key)
      const made = await forkRun(run.id, { checkpoint: 1 }, key)
      await cancelWorkflow(run.id, 'superseded', newKey())
      return made
    },
    onDone: (reply) => {
      if (!inChat) return go(runAddress((reply as RunState).id))
      const next = (reply as MessageSent).run
      if (next && next.id !== run.id && location.pathname.includes('/runs/')) go(runAddress(next.id))
    },
  })
  return (
    <>
      <button type="button" className="link" disabled={isPending || !!offline} title={offline} onClick={() => setAsks(true)}>
        {isPending ? 'Starting…' : 'Retry from scratch'}
      </button>
      {asks && (
        <ConfirmDialog title="Retry from scratch?" yes="Retry from scratch" onClose={() => setAsks(false)} onYes={() => mutate()}>
          Cancels this run and starts anew. {whole(run.tokens)} tokens were spent.
        </ConfirmDialog>
      )}
    </>
  )
}
