/** Search or jump: runs by what a person remembers of them, chats, pages, and what can be done with the run on screen.
 * Each line names the command of `onward` that does the same. */

import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { useLocation } from 'wouter'
import { findRun, listChats, pauseRun, resumeWorkflow } from '../api/client'
import type { RunPage } from '../api/types'
import { chatAddress, runAddress, search } from '../state/address'
import { keys } from '../state/keys'
import { useOffline } from '../state/live'
import { useRole } from '../state/me'
import { called } from '../words/names'
import { canResume } from './BannerSlot'
import { Dialog } from './Dialog'
import { Icon, type IconName } from './Icon'
import { StatusGlyph } from './Status'
import { toastProblem } from './Toasts'

interface Line {
  key: string
  icon?: IconName
  status?: string
  name: string
  says?: string
  command: string
  act: () => unknown
}

const PLACES: readonly [string, string, IconName, string][] = [
  ['/runs', 'Runs', 'runs', 'onward status'], ['/chats', 'Chats', 'chat', 'onward chats'],
  ['/gates', 'Gates', 'gate', 'onward answer'], ['/limits', 'Limits and usage', 'gauge', 'onward limits'],
]

/** A text a moment after it was last changed. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 120)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}

/** What can be done with the run that is shown, if one is. */
function useActions(go: (to: string) => void): Line[] {
  const cache = useQueryClient()
  const may = useRole('operator')
  const offline = useOffline()
  const id = /^\/runs\/([^/?]+)/.exec(useLocation()[0])?.[1]
  const page = id ? cache.getQueryData<RunPage>(keys.run(decodeURIComponent(id))) : undefined
  if (!page || !may || offline) return []
  const post = (sent: Promise<unknown>) => void sent.catch(toastProblem).finally(() => cache.invalidateQueries({ queryKey: keys.run(page.id) }))
  const name = called(page)
  return [
    ...(canResume(page) ? [{ key: 'resume', icon: 'retry' as const, name: `Resume ${name}`, command: `onward resume ${name}`, act: () => post(resumeWorkflow(page.id, { head: page.head })) }] : []),
    ...(page.status === 'running' || page.status === 'queued' ? [{ key: 'pause', icon: 'pause' as const, name: `Pause ${name} after the step`, command: `onward pause ${name}`, act: () => post(pauseRun(page.id)) }] : []),
    { key: 'fork', icon: 'fork', name: `Fork ${name}…`, command: `onward replay ${name}`, act: () => go(runAddress(page.id, { fork: 'choose' })) },
  ]
}

export function Palette({ onClose }: { onClose: () => void }) {
  const [, go] = useLocation()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const wanted = useSettled(text.trim())
  const actions = useActions(go)
  const runs = useQuery({ queryKey: ['find', wanted], queryFn: () => findRun(wanted), enabled: wanted.length > 1, placeholderData: keepPreviousData }).data?.runs ?? []
  const chats = useQuery({ queryKey: keys.chats, queryFn: () => listChats(), staleTime: 60_000 }).data?.chats ?? []
  const fits = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase())
  const lines: Line[] = [
    ...actions.filter((one) => fits(one.name)),
    ...(wanted.length > 1 ? runs : []).map((run): Line => ({ key: run.id, status: run.status, name: `${called(run)} ${run.pipeline}`, says: run.now.slice(0, 80), command: `onward show ${called(run)}`, act: () => go(runAddress(run.id)) })),
    ...PLACES.filter(([, name]) => fits(name)).map(([path, name, icon, command]): Line => ({ key: path, icon, name, command, act: () => go(path) })),
    ...(text.trim() ? chats.filter((one) => fits(one.chat)).slice(0, 6) : []).map((one): Line => ({ key: `chat/${one.chat}`, icon: 'chat', name: one.chat, says: 'chat', command: `onward chats ${one.chat}`, act: () => go(chatAddress(one.chat)) })),
    ...(text.trim() ? [{ key: 'search', icon: 'search' as const, name: `Runs with “${text.trim()}”`, command: 'onward status', act: () => go(`/runs${search({ text: text.trim() })}`) }] : []),
  ]
  const chosen = Math.min(at, lines.length - 1)
  const choose = (line: Line | undefined) => {
    if (!line) return
    onClose()
    line.act()
  }
  useEffect(() => {
    document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: 'nearest' })
  }, [chosen])
  return (
    <Dialog label="Search or jump to" onClose={onClose} palette>
      <label className="field" style={{ height: 44, border: 0, borderRadius: 0, boxShadow: 'none' }}>
        <Icon name="search" size="sm" />
        <input
          autoFocus role="combobox" aria-label="Search or jump to" aria-expanded aria-controls="found" aria-activedescendant={lines.length ? `found-${chosen}` : undefined} autoComplete="off"
          placeholder="Run, chat, page or action" value={text} onChange={(event) => { setText(event.target.value); setAt(0) }}
          onKeyDown={(event) => {
            const by = { ArrowDown: 1, ArrowUp: -1 }[event.key]
            if (by) setAt((chosen + by + lines.length) % Math.max(1, lines.length))
            else if (event.key === 'Enter') choose(lines[chosen])
            else return
            event.preventDefault()
          }}
        />
      </label>
      <div id="found" role="listbox" aria-label="Found" className="found">
        {lines.map((line, index) => (
          <div key={line.key} id={`found-${index}`} role="option" aria-selected={index === chosen} className={`line ${index === chosen ? 'on' : ''}`} onPointerMove={() => setAt(index)} onClick={() => choose(line)}>
            {line.status ? <StatusGlyph of={line.status} /> : <Icon name={line.icon ?? 'runs'} />}
            <span className="strong cut" style={{ flex: 'none', maxWidth: '60%' }}>{line.name}</span>
            <span className="dim cut grow">{line.says}</span>
            <span className="mono dim hide-s">{line.command}</span>
          </div>
        ))}
        {!lines.length && <p className="dim" style={{ padding: '10px 12px' }}>No matches.</p>}
      </div>
    </Dialog>
  )
}
