/** Who is signed in, and what they may do. */

import { useQuery } from '@tanstack/react-query'
import { getMe, type Me, Problem } from '../api/client'
import { keys } from './keys'

export type Role = 'viewer' | 'operator' | 'approver' | 'admin'

/** Until it is known who is signed in, everything is offered: the server refuses what may not be done. */
const UNKNOWN: Me = { name: '', roles: ['admin'], version: '', database: '' }

export function useMe(): Me {
  const { data } = useQuery({
    queryKey: keys.me, staleTime: Infinity,
    queryFn: ({ signal }) => getMe(signal).catch((error: unknown) => {
      if (error instanceof Problem && (error.status === 404 || error.status === 405)) return UNKNOWN
      throw error
    }),
  })
  return data ?? UNKNOWN
}

/** Whether the person has a role; admin has all. */
export function useRole(role: Role): boolean {
  const { roles } = useMe()
  return roles.includes('admin') || roles.includes(role)
}
