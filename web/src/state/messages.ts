/** Everything that was said in a run: read in pages, then followed. */

import { useQuery, useQueryClient } from '@tanstack/react-query'
import { readEvents, readMessages } from '../api/client'
import type { EventShown } from '../api/client'
import { applyEvents, applyPieces, SILENCE, type Conversation } from './apply'
import { keys } from './keys'

export function useMessages(of: string, enabled = true) {
  const cache = useQueryClient()
  return useQuery({
    queryKey: keys.messages(of), enabled,
    queryFn: async ({ signal }) => {
      // What is known stays, and only what came since is read.
      let said = cache.getQueryData<Conversation>(keys.messages(of)) ?? SILENCE
      for (;;) {
        const page = await readMessages(of, said.position, 200, signal)
        said = applyPieces(said, page.pieces)
        if (page.cursor === null || !page.pieces.length) return said
      }
    },
  })
}

export function useEvents(run: string, enabled = true) {
  const cache = useQueryClient()
  return useQuery({
    queryKey: keys.events(run), enabled,
    queryFn: async ({ signal }) => {
      let known: readonly EventShown[] = cache.getQueryData<readonly EventShown[]>(keys.events(run)) ?? []
      for (;;) {
        const page = await readEvents(run, Number(known.at(-1)?.seq ?? 0), 200, signal)
        known = applyEvents(known, page.events)
        if (page.cursor === null || !page.events.length) return known
      }
    },
  })
}
