/** Which address shows which page. */

import { lazy, Suspense, useCallback, useEffect, useState } from 'react'
import { Redirect, Route, Switch, useLocation } from 'wouter'
import { whenSignedOut } from './api/client'
import Chats from './pages/Chats'
import Gates from './pages/Gates'
import Limits from './pages/Limits'
import Runs from './pages/Runs'
import SignIn from './pages/SignIn'
import { Help } from './parts/Help'
import { Palette } from './parts/Palette'
import { Shell, Title } from './parts/Shell'
import { Boundary, Skeleton } from './parts/States'
import { Toasts } from './parts/Toasts'
import { useChord, useKeys, useLead } from './state/keyboard'
import { LiveProvider } from './state/live'
import { toggleTheme } from './state/prefs'
import { search } from './state/address'

const Run = lazy(() => import('./pages/Run'))

export function Pages() {
  const [path, go] = useLocation()
  const leave = useCallback(() => {
    if (path === '/sign-in') return
    go(`/sign-in${search({ then: location.pathname + location.search })}`, { replace: true })
  }, [path, go])
  whenSignedOut(leave)
  return (
    <>
      <Switch>
        <Route path="/sign-in"><SignIn /></Route>
        <Route path="/"><Redirect to="/runs" replace /></Route>
        <Route><Inside path={path} onDenied={leave} /></Route>
      </Switch>
      <Toasts />
    </>
  )
}

function Inside({ path, onDenied }: { path: string; onDenied: () => void }) {
  const [, go] = useLocation()
  const [help, setHelp] = useState(false)
  const [jumps, setJumps] = useState(false)
  // The link that led here is gone: without this, Tab would begin somewhere in the page.
  useEffect(() => {
    const at = document.activeElement
    if (!at || at === document.body || !at.checkVisibility()) document.getElementById('main')?.focus({ preventScroll: true })
  }, [path])
  useLead()
  useChord('k', () => setJumps((is) => !is))
  useKeys({
    'g r': () => go('/runs'),
    'g c': () => go('/chats'),
    'g g': () => go('/gates'),
    'g l': () => go('/limits'),
    t: toggleTheme,
    '?': () => setHelp(true),
  })
  return (
    <LiveProvider onDenied={onDenied}>
      <Shell rail={/^\/runs\/./.test(path)} onJump={() => setJumps(true)}>
        <Boundary on={path}>
          <Suspense fallback={<Skeleton />}>
            <Switch>
              <Route path="/runs"><Runs /></Route>
              <Route path="/runs/:id">{({ id }) => <Run key={id} id={id} />}</Route>
              <Route path="/chats"><Chats chat={null} /></Route>
              <Route path="/chats/:chat">{({ chat }) => <Chats chat={chat} />}</Route>
              <Route path="/gates"><Gates /></Route>
              <Route path="/limits"><Limits /></Route>
              <Route><Title>Not found</Title><div className="none"><h1 className="strong text-ink">There is no such page.</h1></div></Route>
            </Switch>
          </Suspense>
        </Boundary>
      </Shell>
      {help && <Help onClose={() => setHelp(false)} />}
      {jumps && <Palette onClose={() => setJumps(false)} />}
    </LiveProvider>
  )
}
