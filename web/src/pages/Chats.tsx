/** What is it doing for me? */

import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useLayoutEffect, useMemo, useState } from 'react'
import { Link, useLocation } from 'wouter'
import { listChats, showChat } from '../api/client'
import type { ChatListed, ChatPage, ChatRunShown } from '../api/types'
import { BannerSlot } from '../parts/BannerSlot'
import { Composer } from '../parts/Composer'
import { Following } from '../parts/Following'
import { GateCard } from '../parts/GateCard'
import { Icon } from '../parts/Icon'
import { ChatMessage, type CallFacts } from '../parts/Message'
import { Plan } from '../parts/Plan'
import { Title } from '../parts/Shell'
import { Command, ErrorBox, Skeleton } from '../parts/States'
import { StatusGlyph, StatusPill } from '../parts/Status'
import { Age } from '../parts/Time'
import { chatAddress, runAddress } from '../state/address'
import { conversationOf, SILENCE, type Conversation } from '../state/apply'
import { useKeys } from '../state/keyboard'
import { keys } from '../state/keys'
import { useFollow } from '../state/live'
import { short } from '../words/money'
import { reasonWord } from '../words/status'

export default function Chats({ chat }: { chat: string | null }) {
  const list = useQuery({ queryKey: keys.chats, queryFn: () => listChats() })
  const [, go] = useLocation()
  const chats = list.data?.chats ?? []
  const first = chats[0]?.chat
  const isWide = matchMedia('(min-width: 721px)').matches
  useEffect(() => {
    if (!chat && first && isWide) go(chatAddress(first), { replace: true })
  }, [chat, first, isWide, go])
  const move = (by: number) => {
    const to = chats[chats.findIndex((one) => one.chat === chat) + by]
    if (to) go(chatAddress(to.chat))
  }
  useKeys({ j: () => move(1), k: () => move(-1) })

  if (list.isError && !list.data) return <><Title>Chats</Title><div className="top"><h1>Chats</h1></div><ErrorBox error={list.error} again={() => void list.refetch()} /></>
  if (list.data && !chats.length && !chat) return <NoChats />
  return (
    <>
      {chat ? <Open key={chat} chat={chat} chats={chats} /> : (
        <>
          <Title>Chats</Title>
          <div className="top"><h1>Chats</h1></div>
          {list.isPending ? <Skeleton height="54px" /> : <div className="chat list"><List chats={chats} chat={null} /></div>}
        </>
      )}
    </>
  )
}

function NoChats() {
  return (
    <>
      <Title>Chats</Title>
      <div className="top"><h1>Chats</h1></div>
      <div className="start"><div className="in">
        <h2 style={{ fontSize: 20, lineHeight: '28px', fontWeight: 620 }}>No messages yet.</h2>
        <p className="mid">A chat is a conversation that runs belong to. The first message starts a run.</p>
        <Command>onward chat hello "What can you do?"</Command>
      </div></div>
    </>
  )
}

const stateWords = ({ status, reason }: ChatListed) =>
  !status ? 'no run' : reason && status !== 'completed' ? reasonWord(reason) : status === 'waiting' ? 'waits for you' : status

function List({ chats, chat }: { chats: readonly ChatListed[]; chat: string | null }) {
  return (
    <nav className="cl" aria-label="Chats" tabIndex={-1}>
      {chats.map((one) => (
        <Link key={one.chat} href={chatAddress(one.chat)} className={one.chat === chat ? 'on' : ''} aria-current={one.chat === chat ? 'page' : undefined}>
          <StatusGlyph of={one.status} />
          <b className="cut">{one.chat}</b>
          <em><Age at={one.created_at} /></em>
          <span className="cut">{one.waiting ? `${one.waiting} waiting · ` : ''}{stateWords(one)}</span>
        </Link>
      ))}
    </nav>
  )
}

function Open({ chat, chats }: { chat: string; chats: readonly ChatListed[] }) {
  const cache = useQueryClient()
  const query = useQuery({ queryKey: keys.chat(chat), queryFn: ({ signal }) => showChat(chat, signal) })
  const page = query.data
  const [planOpen, setPlanOpen] = useState(false)
  // What was read begins the conversation; what came meanwhile over the connection stays.
  useLayoutEffect(() => {
    if (!page) return
    const read = conversationOf(page.messages)
    cache.setQueryData<Conversation>(keys.messages(chat), (known) => (known && known.position >= read.position ? known : read))
  }, [page, chat, cache])
  // Only whether it was read: each piece that comes would draw the whole page again.
  const { data: isRead } = useQuery({ queryKey: keys.messages(chat), enabled: false, select: (said: Conversation) => !!said })
  const run = page?.runs[0]
  useFollow(page && isRead ? { of: chat, ...(run ? { run: run.id } : {}) } : undefined)

  if (query.isError && !page) return <><Title>{chat}</Title><ErrorBox error={query.error} again={() => void query.refetch()} /></>
  const word = run?.status === 'waiting' && page?.gate ? 'Waiting for you' : undefined
  return (
    <>
      <Title>{chat}</Title>
      <div className="top">
        <Link href="/chats" className="btn ghost icon only-s" aria-label="All chats"><span style={{ transform: 'rotate(180deg)' }}><Icon name="next" /></span></Link>
        <h1 className="sub cut">{chat}</h1>
        <span aria-live="polite">{run && <StatusPill status={run.status} inDoubt={!!run.step_in_doubt} {...(word ? { word } : {})} />}</span>
        <span className="grow" />
        {run && <Link className="btn hide-s" href={runAddress(run.id)}><Icon name="runs" size="sm" />Open run</Link>}
      </div>
      <div className={`chat ${planOpen ? 'plan-open' : ''}`}>
        <List chats={chats} chat={chat} />
        <section className="conv" aria-label="Conversation">
          {run && <Strip run={run} onOpen={() => setPlanOpen(true)} />}
          {!page || !isRead ? <div className="scroll"><Skeleton rows={5} /></div> : <Talk page={page} />}
          <div className="dock">
            {page?.gate ? <GateCard gate={page.gate} /> : run && page?.banner && <BannerSlot banner={page.banner} run={bannerRun(page)} />}
            {page && <Composer chat={chat} page={page} />}
          </div>
        </section>
        {run ? <Plan page={page!} run={run} onClose={() => setPlanOpen(false)} /> : <aside className="plan" aria-label="Plan"><p className="dim">No run yet.</p></aside>}
      </div>
    </>
  )
}

/** The banner is that of the newest run that is not dismissed. */
const bannerRun = (page: ChatPage): ChatRunShown => page.runs.find((run) => !run.is_dismissed) ?? page.runs[0]!

function Strip({ run, onOpen }: { run: ChatRunShown; onOpen: () => void }) {
  const done = run.planned_agents.length - run.agents_left.length
  return (
    <button type="button" className="strip" onClick={onOpen}>
      <StatusGlyph of={run.status} />
      <span className="grow cut num">{done} of {run.planned_agents.length} agents done · {short(run.tokens)} tokens</span>
      <span>Plan</span><Icon name="down" size="xs" />
    </button>
  )
}

function Talk({ page }: { page: ChatPage }) {
  const { data: said = SILENCE } = useQuery<Conversation>({ queryKey: keys.messages(page.chat), enabled: false })
  const open = new Set(page.runs.filter((run) => run.status === 'running').map((run) => run.id))
  const messages = said.messages
  const facts = useMemo(() => new Map(page.messages.map((one): [string, CallFacts] => [
    one.id, { seconds: one.ended_at && one.role === 'assistant' ? (Date.parse(one.ended_at) - Date.parse(one.begun_at)) / 1000 : null, tokens: 0 },
  ])), [page.messages])
  const last = messages.at(-1)
  return (
    <Following className="scroll" of={said} grows={last?.state === 'streaming' && open.has(last.run)}>
      {messages.length ? messages.map((one, at) => {
        const before = messages[at - 1]
        const shown = one.state === 'streaming' && !open.has(one.run) ? { ...one, state: 'interrupted' } : one
        return <ChatMessage key={one.id} said={shown} facts={facts.get(one.id)} isFirst={before?.step !== one.step || before.run !== one.run || before.role !== one.role} />
      }) : <p className="dim">No messages yet.</p>}
      {page.waiting.map((one) => <div key={one.message} className="grid" style={{ justifyItems: 'end', gap: 4 }}><div className="me" style={{ opacity: 0.7 }}>{one.text}</div><span className="dim small">waits until the run has ended</span></div>)}
    </Following>
  )
}
