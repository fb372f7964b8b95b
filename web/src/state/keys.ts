/** The names under which replies are kept, so that frames and pages mean the same entry. */

import type { RunFilters } from '../api/client'

export const keys = {
  me: ['me'] as const,
  stats: ['stats'] as const,
  gates: ['gates'] as const,
  runs: (filters: RunFilters) => ['runs', filters] as const,
  run: (id: string) => ['run', id] as const,
  step: (id: string, step: string) => ['step', id, step] as const,
  graph: (id: string) => ['graph', id] as const,
  events: (id: string) => ['events', id] as const,
  calls: (id: string) => ['calls', id] as const,
  checkpoints: (id: string) => ['checkpoints', id] as const,
  artifacts: (id: string) => ['artifacts', id] as const,
  receipts: (id: string) => ['receipts', id] as const,
  printed: (id: string, step: string) => ['printed', id, step] as const,
  messages: (of: string) => ['messages', of] as const,
  chats: ['chats'] as const,
  chat: (chat: string) => ['chat', chat] as const,
  limits: ['limits'] as const,
  usage: (by: string) => ['usage', by] as const,
  pipelines: ['pipelines'] as const,
}
