/** Says something in the chat, once, and says beforehand what that will do. */

import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { newKey, Problem, sendMessage } from '../api/client'
import type { ChatPage, MessageSent } from '../api/types'
import { keys } from '../state/keys'
import { useOffline } from '../state/live'
import { useRole } from '../state/me'
import { Icon } from './Icon'
import { toast, toastProblem } from './Toasts'

/** What the next message does, by how the chat stands. */
function promise(page: ChatPage): string {
  const run = page.runs[0]
  if (page.gate) return page.gate.type === 'freeform' ? 'Your next message is the answer' : 'Answer with a choice, or ask something else'
  if (page.banner?.kind === 'limit' && !page.banner.actions.includes('resume')) return 'Raise the limit, then send any message to continue'
  if (page.interrupted_run) return 'Send any message to resume, for example “continue?”'
  if (run && (run.status === 'running' || run.status === 'queued')) return 'Write a message; it waits until this run has ended'
  return 'Write a message'
}

const OUTCOMES = new Set(['gate', 'asked', 'limit', 'refused', 'steered', 'queued'])

export function Composer({ chat, page }: { chat: string; page: ChatPage }) {
  const cache = useQueryClient()
  const may = useRole('operator')
  const offline = useOffline()
  const [text, setText] = useState('')
  const [key, setKey] = useState(newKey)
  const send = useMutation({
    mutationFn: () => sendMessage({ chat, text: text.trim() }, key),
    retry: (count, error) => error instanceof Problem && error.status === 0 && count < 2,
    onSuccess: (sent: MessageSent) => {
      setText('')
      setKey(newKey())
      if (sent.notice && OUTCOMES.has(sent.outcome)) toast(sent.notice, sent.outcome === 'limit' || sent.outcome === 'refused' ? 'interrupted' : 'queued')
    },
    onError: toastProblem,
    onSettled: () => {
      void cache.invalidateQueries({ queryKey: keys.chat(chat) })
      void cache.invalidateQueries({ queryKey: keys.chats })
    },
  })
  const submit = () => {
    if (text.trim() && !send.isPending && !offline) send.mutate()
  }
  if (!may) return <p className="dim small">Only an operator can send messages.</p>
  return (
    <form className="comp" onSubmit={(event) => { event.preventDefault(); submit() }}>
      <textarea
        rows={1} aria-label="Message" placeholder={promise(page)} value={text} onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return
          event.preventDefault()
          submit()
        }}
      />
      <div className="line">
        <span className="chip hide-s"><Icon name="pipeline" size="xs" />chosen by the message</span>
        <span className="grow" />
        <span className="dim small hide-s"><kbd>↵</kbd> send &ensp; <kbd>⇧↵</kbd> new line</span>
        <button type="submit" className="btn ink sm" style={{ borderRadius: 8 }} disabled={!text.trim() || send.isPending || !!offline} title={offline}><Icon name="send" size="sm" />{send.isPending ? 'Sending…' : 'Send'}</button>
      </div>
    </form>
  )
}
