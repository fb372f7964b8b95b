/** The frame of every page: navigation with what needs somebody, the connection, and the skip link. */

import { useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode } from 'react'
import { Link, useLocation } from 'wouter'
import { getStats, listGates, signOut } from '../api/client'
import { keys } from '../state/keys'
import { useLive } from '../state/live'
import { useMe } from '../state/me'
import { toggleTheme } from '../state/prefs'
import { countdown, span } from '../words/durations'
import { Icon, Logo, type IconName } from './Icon'
import { Menu } from './Menu'
import { StatusGlyph } from './Status'
import { useNow } from './Time'

const PLACES: readonly { path: string; name: string; icon: IconName }[] = [
  { path: '/runs', name: 'Runs', icon: 'runs' },
  { path: '/chats', name: 'Chats', icon: 'chat' },
  { path: '/gates', name: 'Gates', icon: 'gate' },
  { path: '/limits', name: 'Limits', icon: 'gauge' },
]

const JUMP = /Mac|iP/.test(navigator.platform) ? '⌘K' : 'Ctrl K'

export const useStats = () => useQuery({ queryKey: keys.stats, queryFn: ({ signal }) => getStats(signal) })
export const useGates = () => useQuery({ queryKey: keys.gates, queryFn: ({ signal }) => listGates(signal) })

export function Shell({ rail = false, onJump, children }: { rail?: boolean; onJump: () => void; children: ReactNode }) {
  const [path] = useLocation()
  const stats = useStats().data
  const gates = useGates().data?.gates.length ?? 0
  const stopped = stats?.runs.recoverable ?? 0
  const counts: Record<string, { is: number; kind: string; says: string }> = {
    '/runs': { is: stopped, kind: 'amber', says: `${stopped} can be resumed` },
    '/gates': { is: gates, kind: 'hot', says: `${gates} wait for an answer` },
  }
  return (
    <div className={`shell ${rail ? 'rail' : ''}`}>
      <a className="btn ink skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus() }}>Skip to the content</a>
      <nav className="side" aria-label="Main">
        <Link href="/runs" className="brand" aria-label="Onward"><Logo /><span className="nl">Onward</span></Link>
        <button type="button" className="jumpto" aria-keyshortcuts="Control+K Meta+K" title={rail ? `Search or jump to (${JUMP})` : undefined} onClick={onJump}>
          <Icon name="search" size={rail ? '' : 'sm'} /><span className="nl grow">Search or jump to</span><kbd aria-hidden="true">{JUMP}</kbd>
        </button>
        {PLACES.map(({ path: to, name, icon }) => {
          const on = path === to || path.startsWith(`${to}/`)
          const count = counts[to]
          return (
            <Link key={to} href={to} className={`nav ${on ? 'on' : ''}`} aria-current={on ? 'page' : undefined} title={rail ? name : undefined}>
              <Icon name={icon} />
              <span className="nl">{name}</span>
              {!!count?.is && <span className={`count ${count.kind}`} title={count.says}>{count.is}<span className="sr"> {count.kind === 'hot' ? 'open' : 'can be resumed'}</span></span>}
            </Link>
          )
        })}
        <Foot />
      </nav>
      <main className="main" id="main" tabIndex={-1}>
        <OfflineStrip />
        {children}
      </main>
    </div>
  )
}

function Foot() {
  const { connection } = useLive()
  const me = useMe()
  const cache = useQueryClient()
  const [, go] = useLocation()
  const says = { live: 'Live', connecting: 'Connecting', asking: 'Asking every 4 s', lost: 'Not connected' }[connection.is]
  const leave = async () => {
    await signOut().catch(() => undefined)
    cache.clear()
    go('/sign-in')
  }
  return (
    <div className="foot">
      <span className={`live ${connection.is === 'live' ? '' : 'off'}`} title={says}><span className="t">{says}</span></span>
      {me.version && <span className="t">onward {me.version}{me.database && ` · ${me.database}`}</span>}
      <span className="line">
        {me.name && <span className="t grow cut">{me.name} · {me.roles.join(', ')}</span>}
        <Menu
          className="btn ghost sm icon" label="Settings" button={<Icon name="more" size="sm" />}
          choices={[
            { label: 'Light or dark', act: toggleTheme },
            { label: 'Sign out', act: () => void leave() },
          ]}
        />
      </span>
    </div>
  )
}

function OfflineStrip() {
  const { connection, retry } = useLive()
  const now = useNow()
  if (connection.is !== 'lost') return null
  const quiet = Math.max(0, Math.round((now - connection.since) / 1000))
  return (
    <div className="offline" role="status">
      <StatusGlyph of="queued" />
      <b>Reconnecting. What you see may be old.</b>
      <span className="hide-s num">Last event {span(quiet)} ago. Trying again in {countdown(connection.again, now)}.</span>
      <span className="grow" />
      <button type="button" className="btn sm" onClick={retry}>Try now</button>
    </div>
  )
}

/** A page's title in the tab of the browser. */
export function Title({ children }: { children: string }) {
  return <title>{`${children} · Onward`}</title>
}
