/** One decision about a run: posted once under a key, busy until it shows, refused in the server's words. */

import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { newKey, Problem } from '../api/client'
import { keys } from '../state/keys'
import { useOffline } from '../state/live'
import { useRole, type Role } from '../state/me'
import { Icon, type IconName } from './Icon'
import { toast, toastProblem } from './Toasts'

export interface Act {
  run: string
  /** What is posted; the key makes a second click, or a lost reply, harmless. */
  post: (key: string) => Promise<unknown>
  /** What a screen reader hears when it is done. */
  said?: string
  onDone?: (reply: unknown) => void
}

/** Post a decision. Nothing is optimistic: the run is read again, and frames bring the rest. */
export function useAct({ run, post, said, onDone }: Act) {
  const cache = useQueryClient()
  const [key, setKey] = useState(newKey)
  return useMutation({
    mutationFn: () => post(key),
    // A lost reply is asked again under the same key.
    retry: (count, error) => error instanceof Problem && error.status === 0 && count < 2,
    onSuccess: (reply) => {
      if (said) toast(said, 'completed')
      onDone?.(reply)
    },
    onError: toastProblem,
    onSettled: (_, error) => {
      if (!(error instanceof Problem && error.status === 0)) setKey(newKey())
      void cache.invalidateQueries({ queryKey: keys.stats })
      void cache.invalidateQueries({ queryKey: keys.gates })
      void cache.invalidateQueries({ queryKey: ['chat'] })
      void cache.invalidateQueries({ queryKey: ['runs'] })
      return cache.invalidateQueries({ queryKey: keys.run(run) })
    },
  })
}

export function ActionButton({ act, role = 'operator', className = 'btn', icon, busy = 'Working…', off, children, ...rest }: {
  act: Act
  role?: Role
  className?: string
  icon?: IconName
  busy?: string
  off?: string | undefined
  children: ReactNode
  id?: string
}) {
  const may = useRole(role)
  const offline = useOffline()
  const { mutate, isPending } = useAct(act)
  if (!may) return null
  const why = offline ?? off
  return (
    <button
      type="button" className={className} disabled={isPending || !!why} title={why} aria-busy={isPending} {...rest}
      onClick={(event) => { event.stopPropagation(); mutate() }}
    >
      {icon && <Icon name={icon} size="sm" />}
      {isPending ? busy : children}
    </button>
  )
}
