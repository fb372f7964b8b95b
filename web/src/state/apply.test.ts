import { expect, test } from 'vitest'
import type { GateListed, Geometry, MessagePiece, RunListed, RunPage, TimelineRow } from '../api/types'
import { applyEvents, applyGate, applyPieces, applyRow, applyState, applyTimeline, conversationOf, SILENCE } from './apply'

const piece = (position: number, kind: string, text = '', more: Partial<MessagePiece> = {}): MessagePiece => ({
  position, kind, text, message: 'a', parts: [], state: null, chat: 'c', run: 'r', step: 's#1', call: 'm1', number: 1,
  role: 'assistant', model: 'openai:gpt-5', ...more,
})

const STREAM = [piece(1, 'start'), piece(2, 'reasoning', 'hm'), piece(3, 'text', 'Hel'), piece(4, 'text', 'lo'), piece(5, 'end', '', { state: 'complete' })]

test('pieces grow a message, and texts that follow each other are one part', () => {
  const said = applyPieces(SILENCE, STREAM)
  expect(said.messages[0]!.parts).toEqual([{ kind: 'reasoning', text: 'hm' }, { kind: 'text', text: 'Hello' }])
  expect(said.messages[0]!.state).toBe('complete')
  expect(said.position).toBe(5)
})

test('however often pieces come, and however they are cut, a message is the same', () => {
  const whole = applyPieces(SILENCE, STREAM)
  for (let cut = 0; cut <= STREAM.length; cut++)
    for (let back = 0; back <= cut; back++) {
      const first = applyPieces(SILENCE, STREAM.slice(0, cut))
      expect(applyPieces(first, STREAM.slice(back))).toEqual(whole)
    }
})

test('a reset replaces what was there', () => {
  const said = applyPieces(applyPieces(SILENCE, STREAM.slice(0, 3)), [
    piece(9, 'reset', '', { parts: [{ kind: 'text', text: 'All' }], state: 'interrupted' })])
  expect(said.messages).toHaveLength(1)
  expect(said.messages[0]).toMatchObject({ state: 'interrupted', parts: [{ kind: 'text', text: 'All' }] })
})

test('a message that was growing when it was read is read again from its beginning', () => {
  const shown = { id: 'a', chat: 'c', run: 'r', step: 's#1', call: 'm1', number: 1, role: 'assistant', state: 'streaming',
    model: '', begun_at: '', changed_at: '', ended_at: null, first_position: 1, last_position: null, text: 'Hel',
    parts: [{ kind: 'text', text: 'Hel' }] }
  const read = conversationOf([shown])
  expect(read.position).toBe(0)
  expect(applyPieces(read, STREAM).messages[0]!.parts.at(-1)!.text).toBe('Hello')
})

test('a row changes in place, and an older one changes nothing', () => {
  const row = (id: string, head: number, now: string) => ({ id, head, now }) as RunListed
  const list = { pages: [{ runs: [row('a', 3, 'x'), row('b', 3, 'y')], older: 0, cursor: null }] }
  expect(applyRow(list, row('b', 4, 'z')).pages[0]!.runs.map((one) => one.now)).toEqual(['x', 'z'])
  expect(applyRow(list, row('b', 2, 'z'))).toBe(list)
  expect(applyRow(list, row('c', 9, 'z'))).toBe(list)
})

test('rows of the timeline are replaced by key, and those that are gone are left out', () => {
  const row = (key: string, state: string) => ({ key, state })
  const page = { head: 5, status: 'running', timeline: [row('a#1', 'open'), row('planned/b', 'planned')] } as RunPage
  const next = applyState(page, { head: 6, timeline: [row('a#1', 'finished'), row('b#1', 'open')] as RunPage['timeline'], timeline_gone: ['planned/b'] })
  expect(next.timeline.map((one) => [one.key, one.state])).toEqual([['a#1', 'finished'], ['b#1', 'open']])
  expect(next).not.toHaveProperty('timeline_gone')
  expect(next.status).toBe('running')
  expect(applyState(page, { head: 4, status: 'failed' })).toBe(page)
})

test('events are kept once and in order', () => {
  expect(applyEvents([{ seq: 1 }, { seq: 2 }], [{ seq: 2 }, { seq: 4 }, { seq: 3 }]).map((event) => event.seq)).toEqual([1, 2, 3, 4])
})

test('a drawing is as the last steps of its nodes are', () => {
  const node = (id: string) => ({ id, state: 'not_reached', step: null })
  const row = (step: string, state: string) => ({ kind: 'step', step, state }) as TimelineRow
  const geometry = { nodes: [node('a'), node('b'), node('c')], edges: [] } as unknown as Geometry
  const now = applyTimeline(geometry, [row('a#1', 'finished'), row('fan#1.b/b#1', 'failed'), row('fan#1.b/b#2', 'open'), row('c#1:m1.t1', 'waiting')])
  expect(now.nodes.map((one) => [one.step, one.state])).toEqual([['a#1', 'succeeded'], ['fan#1.b/b#2', 'running'], [null, 'not_reached']])
})

test('a gate that was closed leaves the inbox', () => {
  const gate = { run: 'r', gate: 'g#1', text: '?' } as GateListed
  expect(applyGate([], gate)).toEqual([gate])
  expect(applyGate([gate], { ...gate, text: '??' })).toEqual([{ ...gate, text: '??' }])
  expect(applyGate([gate], { run: 'r', gate: 'g#1', closed: true })).toEqual([])
})
