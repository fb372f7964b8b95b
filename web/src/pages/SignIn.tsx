/** One field. The link that the server printed signs in without it. */

import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import { useLocation } from 'wouter'
import { Problem, signIn } from '../api/client'
import { Icon, Logo } from '../parts/Icon'
import { Title } from '../parts/Shell'
import { useParams } from '../state/address'

/** The code of the link, taken out of the address at once: it must not stay in the history. */
function takeCode(): string {
  const code = decodeURIComponent(location.hash.slice(1))
  if (code) history.replaceState(history.state, '', location.pathname + location.search)
  return code
}

export default function SignIn() {
  const [params] = useParams()
  const [, go] = useLocation()
  const cache = useQueryClient()
  const [token, setToken] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState('')
  const tried = useRef(false)

  const enter = async (secret: { code: string } | { token: string }) => {
    setBusy(true)
    setError('')
    try {
      await signIn(secret)
      cache.clear()
      const then = params.get('then') ?? '/runs'
      go(then.startsWith('/') && !then.startsWith('//') ? then : '/runs', { replace: true })
    } catch (failed) {
      const isUsed = 'code' in secret && failed instanceof Problem && failed.status === 401
      setError(isUsed ? 'This link was used already, or it has expired. Print a new one: onward tokens link'
        : failed instanceof Problem ? [failed.message, failed.advice].filter(Boolean).join(' ') : String(failed))
      setBusy(false)
    }
  }
  useEffect(() => {
    if (tried.current) return
    tried.current = true
    const code = takeCode()
    if (code) void enter({ code })
  })
  return (
    <main className="sign">
      <Title>Sign in</Title>
      <div className="grid gap-5 w-full" style={{ maxWidth: 400 }}>
        <div className="line" style={{ gap: 12, fontSize: 20, fontWeight: 620, letterSpacing: '-.022em' }}>
          <span style={{ transform: 'scale(1.5)', transformOrigin: '0 50%', width: 33 }}><Logo /></span>Onward
        </div>
        <form className="card grid gap-4" style={{ padding: 24 }} onSubmit={(event) => { event.preventDefault(); void enter({ token: token.trim() }) }}>
          <div>
            <h1 style={{ fontSize: 17, lineHeight: '24px', fontWeight: 600 }}>Sign in to this server</h1>
            <p className="mid">The server printed a link when it started. Open that link, or paste a token.</p>
          </div>
          <input type="text" autoComplete="username" value="token" readOnly hidden />
          <label className="grid gap-1.5">
            <span className="strong">Token</span>
            <span className={`field ${error ? 'err' : ''}`} style={{ height: 38 }}>
              <Icon name="key" size="sm" />
              <input type="password" autoComplete="current-password" autoFocus value={token} aria-invalid={!!error} aria-describedby="why" onChange={(event) => setToken(event.target.value)} />
            </span>
            <span id="why" className="says-error" role="alert">{error}</span>
          </label>
          <button type="submit" className="btn ink lg" disabled={busy || !token.trim()}>{busy ? 'Signing in…' : 'Sign in'}</button>
        </form>
        <p className="small dim">{location.host} · the token becomes a cookie that scripts cannot read.</p>
      </div>
    </main>
  )
}
