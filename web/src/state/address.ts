/** The address is the state: filters, the selected step, the tab. It survives refresh, Back and being sent. */

import { useCallback, useMemo } from 'react'
import { useLocation, useSearch } from 'wouter'
import type { RunFilters } from '../api/client'

export type Params = Record<string, string | string[] | undefined | null>

/** The search part of an address; empty values are left out, so that one state has one address. */
export function search(params: Params): string {
  const made = new URLSearchParams()
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === '') continue
    for (const one of Array.isArray(value) ? value : [value]) made.append(name, one)
  }
  const text = made.toString().replaceAll('%2F', '/').replaceAll('%23', '%23')
  return text ? `?${text}` : ''
}

/** The parameters of the present address, and a way to change some of them. */
export function useParams(): [URLSearchParams, (change: Params, push?: boolean) => void] {
  const text = useSearch()
  const [path, go] = useLocation()
  const params = useMemo(() => new URLSearchParams(text), [text])
  const change = useCallback(
    (change: Params, push = false) => {
      const now: Params = {}
      for (const name of new Set(params.keys())) now[name] = params.getAll(name)
      go(path + search({ ...now, ...change }), { replace: !push })
    },
    [params, path, go],
  )
  return [params, change]
}

/** The filters of the list of runs, as its address has them. */
export function runFilters(params: URLSearchParams): RunFilters {
  const filters: RunFilters = {}
  const status = params.getAll('status')
  if (status.length) filters.status = status
  for (const name of ['text', 'pipeline', 'chat', 'tag', 'since'] as const) {
    const value = params.get(name)
    if (value) filters[name] = value
  }
  return filters
}

export const runAddress = (id: string, params: Params = {}) => `/runs/${id}${search(params)}`
export const chatAddress = (chat: string) => `/chats/${encodeURIComponent(chat)}`
export const gateAddress = (run: string, gate: string) => `/gates${search({ gate: `${run}:${gate}` })}`
