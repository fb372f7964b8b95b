/** One message: who says it, how it stands, and its parts. */

import { memo } from 'react'
import type { TimelineRow } from '../api/types'
import type { Said } from '../state/apply'
import { whole } from '../words/money'
import { span } from '../words/durations'
import { Icon } from './Icon'
import { Prose } from './Prose'
import { Status, StatusGlyph } from './Status'
import { Structured } from './Structured'

export interface CallFacts {
  seconds: number | null
  tokens: number
}

/** `design` of `fan#1.frontend/design#2`. */
export const nodeOf = (step: string) => (step.split('/').at(-1) ?? step).replace(/#\d+$/, '')

const WORDS: Record<string, string> = { interrupted: 'cut off', error: 'failed' }

function Meta({ said, facts }: { said: Said; facts?: CallFacts | undefined }) {
  const words = [facts?.seconds != null && span(facts.seconds), facts?.tokens && `${whole(facts.tokens)} tokens`].filter(Boolean).join(' · ')
  return (
    <>
      {WORDS[said.state] && <Status status={said.state === 'error' ? 'failed' : 'interrupted'} word={WORDS[said.state]!} />}
      {said.state === 'streaming' && <span className="st running">writing</span>}
      {said.number > 1 && <span>try {said.number}</span>}
      {words && <span className="num">{words}</span>}
    </>
  )
}

/** A message in a chat: small uses of tools, text to read. */
export const ChatMessage = memo(function ChatMessage({ said, facts, isFirst }: { said: Said; facts?: CallFacts | undefined; isFirst: boolean }) {
  if (said.role === 'user') return <div className="me">{textOf(said)}</div>
  if (said.role === 'system') return <div className="sys"><Icon name="pipeline" size="sm" /><span>{textOf(said).split('`').map((text, at) => (at % 2 ? <code key={at} className="mono">{text}</code> : text))}</span></div>
  const name = nodeOf(said.step) || 'agent'
  return (
    <article className={`m ${isFirst ? '' : 'more'}`} aria-label={`${name} says`}>
      {isFirst ? <span className="avatar" aria-hidden="true">{name[0]}</span> : <span />}
      <div className="msg">
        {(isFirst || said.state !== 'complete') && <header>{isFirst && <b>{name}</b>}<Meta said={said} facts={facts} /></header>}
        <Parts said={said} compact />
      </div>
    </article>
  )
})

/** A message in a run's panel, with its call. */
export const CallMessage = memo(function CallMessage({ said, facts, title, tools }: { said: Said; facts?: CallFacts | undefined; title?: string; tools?: readonly TimelineRow[] }) {
  return (
    <article className="msg">
      <header><b>{title ?? said.call}</b><Meta said={said} facts={facts} /><span className="grow" /><span>{said.model.replace(/^.*:/, '')}</span></header>
      <Parts said={said} tools={tools} />
    </article>
  )
})

const textOf = (said: Said) => said.parts.map((part) => part.text).join('')

function Parts({ said, compact = false, tools = [] }: { said: Said; compact?: boolean; tools?: readonly TimelineRow[] | undefined }) {
  // The uses of a message are its tool calls in their order: m1.t1, m1.t2, …
  let used = 0
  const grows = said.state === 'streaming'
  const last = said.parts.length - 1
  return (
    <>
      {said.parts.map((part, at) => {
        switch (part.kind) {
          case 'reasoning':
            return (
              <details key={at} className="think" open>
                <summary><Icon name="down" size="xs" />Reasoning{said.state === 'interrupted' ? ', kept' : ''}</summary>
                <p className="plain">{part.text}</p>
              </details>
            )
          case 'tool_call':
            return compact ? <ToolChip key={at} text={part.text} /> : <ToolCall key={at} text={part.text} result={resultAfter(said, at)} call={tools[used++]} />
          case 'tool_result':
            return compact || said.parts[at - 1]?.kind === 'tool_call' ? null : <ToolCall key={at} text="" result={part.text} />
          default:
            return <Text key={at} text={part.text} grows={grows && at === last} />
        }
      })}
      {grows && last < 0 && <span className="caret" aria-hidden="true" />}
    </>
  )
}

/** An answer that is JSON is shown as what it is, not as prose. */
function Text({ text, grows }: { text: string; grows: boolean }) {
  if (!text.trim()) return null
  if (!grows && /^\s*[{[]/.test(text)) {
    try {
      return <Structured value={JSON.parse(text) as unknown} />
    } catch {
      // It only begins like JSON.
    }
  }
  return <Prose text={text} grows={grows} />
}

const resultAfter = (said: Said, at: number) => (said.parts[at + 1]?.kind === 'tool_result' ? said.parts[at + 1]!.text : null)

/** `list {"pattern": "*.md"}` as `list` and `*.md`. */
function callOf(text: string): { name: string; args: Record<string, unknown> | null; short: string; raw: string } {
  const at = text.indexOf(' ')
  const name = at < 0 ? text : text.slice(0, at)
  const raw = at < 0 ? '' : text.slice(at + 1)
  try {
    const args = JSON.parse(raw) as Record<string, unknown>
    return { name, args, raw, short: String(Object.values(args).find((one) => typeof one === 'string') ?? '').slice(0, 80) }
  } catch {
    return { name, args: null, raw, short: raw.slice(0, 80) }
  }
}

function ToolChip({ text }: { text: string }) {
  const { name, short } = callOf(text)
  return <div className="uses"><span className="chip" title={text.slice(0, 400)}><Icon name="tool" size="xs" /><span className="mono cut">{name} {short}</span></span></div>
}

/** A use of a tool: its name, its arguments, what came back. */
export function ToolCall({ text, result, call }: { text: string; result: string | null; call?: TimelineRow | undefined }) {
  const { name, args, short, raw } = callOf(text)
  const rest = Object.entries(args ?? {}).filter(([, one]) => one !== short)
  const value = (one: unknown) => (typeof one === 'string' ? one : JSON.stringify(one))
  const body = args ? rest.map(([key, one]) => (rest.length === 1 ? value(one) : `${key}: ${value(one)}`)).join('\n') : raw
  return (
    <details className="tool" open={body.length < 800}>
      <summary><Icon name="tool" size="sm" /><b>{name}</b><span className="mono grow cut">{short}</span>{call?.began_at && call.ended_at && <span className="num">{span((Date.parse(call.ended_at) - Date.parse(call.began_at)) / 1000)}</span>}{call && <StatusGlyph of={call.state} />}</summary>
      {body && <div className="code">{body.slice(0, 4000)}{body.length > 4000 ? '…' : ''}</div>}
      {result && <footer><Icon name="check" size="xs" /><span className="grow cut">{result.slice(0, 200)}</span></footer>}
    </details>
  )
}
