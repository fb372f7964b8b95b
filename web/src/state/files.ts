/** What a run left on the machine where it was executed: receipts, and what its commands printed.
 *
 * Only who may operate runs can read these, and only where they are. */

import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { listReceipts, Problem, readPrinted } from '../api/client'
import type { RunPage } from '../api/types'
import { keys } from './keys'
import { useRole } from './me'

const AGAIN_MS = 2000

/** Whether the files are on another machine; the sentence of the problem names it. */
export const isElsewhere = (error: unknown): error is Problem => error instanceof Problem && error.code === 'not_here'

/** The receipts, read again when another step has finished. */
export function useReceipts(page: RunPage) {
  return useQuery({
    queryKey: [...keys.receipts(page.id), page.steps_finished], placeholderData: keepPreviousData, enabled: useRole('operator'),
    queryFn: ({ signal }) => listReceipts(page.id, signal),
  })
}

/** What a step printed so far; while it runs, every two seconds. `tries` is how often it began. */
export function usePrinted(run: string, step: string, tries: number, isOpen: boolean) {
  const may = useRole('operator')
  return useQuery({
    queryKey: [...keys.printed(run, step), tries, isOpen], placeholderData: keepPreviousData, enabled: may && tries > 0,
    refetchInterval: isOpen ? AGAIN_MS : false,
    queryFn: ({ signal }) => readPrinted(run, step, signal),
  })
}
