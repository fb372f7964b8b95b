/** The filters of the list of runs: what the address says, as a search and chips. */

import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import { listChats, listPipelines, type RunFilters } from '../api/client'
import type { Params } from '../state/address'
import { keys } from '../state/keys'
import { statusWord, STATUSES } from '../words/status'
import { Icon } from './Icon'
import { Menu } from './Menu'

export const SINCE: Record<string, { says: string; hours: number }> = {
  '1h': { says: '1 hour', hours: 1 },
  '1d': { says: '24 hours', hours: 24 },
  '7d': { says: '7 days', hours: 168 },
  '30d': { says: '30 days', hours: 720 },
}

export function FilterBar({ filters, change }: { filters: RunFilters; change: (params: Params) => void }) {
  const pipelines = useQuery({ queryKey: keys.pipelines, queryFn: listPipelines, staleTime: 60_000 }).data?.pipelines ?? []
  const chats = useQuery({ queryKey: keys.chats, queryFn: () => listChats(), staleTime: 60_000 }).data?.chats ?? []
  const status = filters.status ?? []
  const toggled = (one: string) => (status.includes(one) ? status.filter((other) => other !== one) : [...status, one])
  const choice = (name: string, value: string | undefined, label: string) => ({
    label, checked: filters[name as 'chat'] === value, act: () => change({ [name]: value }),
  })
  return (
    <div className="bar" role="search">
      <Search value={filters.text ?? ''} onChange={(text) => change({ text })} />
      <span className="line hide-s">
        <Chip name="status" value={status.map((one) => statusWord(one)).join(', ')} choices={[
          { label: 'any', checked: !status.length, act: () => change({ status: [] }) },
          ...STATUSES.map((one) => ({ label: statusWord(one), checked: status.includes(one), act: () => change({ status: toggled(one) }) })),
        ]} />
        <Chip name="pipeline" value={filters.pipeline} choices={[choice('pipeline', undefined, 'any'), ...pipelines.map((one) => choice('pipeline', one.name, one.name))]} />
        <Chip name="chat" value={filters.chat} choices={[choice('chat', undefined, 'any'), ...chats.slice(0, 30).map((one) => choice('chat', one.chat, one.chat))]} />
        <Chip name="since" value={filters.since && SINCE[filters.since]?.says} choices={[choice('since', undefined, 'any'), ...Object.entries(SINCE).map(([key, { says }]) => choice('since', key, says))]} />
        {filters.tag && <button type="button" className="chip set" onClick={() => change({ tag: undefined })}><span className="dim">tag</span> <b>{filters.tag}</b><Icon name="close" size="xs" /></button>}
      </span>
      <span className="only-s">
        <Menu className="btn icon" label="Filter" button={<Icon name="filter" />} right choices={[
          { label: 'Any status', checked: !status.length, act: () => change({ status: [] }) },
          ...STATUSES.map((one) => ({ label: statusWord(one), checked: status.includes(one), act: () => change({ status: toggled(one) }) })),
        ]} />
      </span>
      <span className="grow hide-s" />
      <span className="dim small hide-s">newest first</span>
    </div>
  )
}

function Chip({ name, value, choices }: { name: string; value: string | undefined; choices: Parameters<typeof Menu>[0]['choices'] }) {
  return (
    <Menu className={`chip ${value ? 'set' : ''}`} choices={choices} button={
      <><span className="dim">{name}</span> <b className="cut" style={{ maxWidth: 130 }}>{value || 'any'}</b><Icon name="down" size="xs" /></>
    } />
  )
}

function Search({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value)
  const sent = useRef(value)
  useEffect(() => {
    if (value !== sent.current) setText((sent.current = value))
  }, [value])
  useEffect(() => {
    if (text === sent.current) return
    const timer = setTimeout(() => onChange((sent.current = text)), 250)
    return () => clearTimeout(timer)
  }, [text, onChange])
  return (
    <label className="field grow" style={{ maxWidth: 420 }}>
      <Icon name="search" size="sm" />
      <input
        id="search" type="search" aria-label="Search runs" placeholder="Search by id, pipeline, chat, tag or reason" value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => event.key === 'Escape' && (setText(''), event.currentTarget.blur())}
      />
    </label>
  )
}
