import { Marked } from 'marked'
import { expect, test } from 'vitest'
import { settle, type Settled } from './blocks'

const NOTHING: Settled = { blocks: [], length: 0, tail: '' }
const lex = (text: string) => new Marked().lexer(text).map((token) => token.raw)
const TEXT = '# Plan\n\nOne *two*\nthree.\n\n1. a\n\n2. b\n   c\n\n```js\nif (x) {\n\n}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd [x](y).'

test('however a text grows, its blocks are those of the whole', () => {
  const whole = lex(TEXT).filter((block) => block.trim())
  for (const step of [1, 3, 7, 50]) {
    let known = NOTHING
    for (let end = 0; end < TEXT.length + step; end += step) known = settle(known, TEXT.slice(0, end), lex)
    expect([...known.blocks, ...lex(known.tail)].filter((block) => block.trim())).toEqual(whole)
    expect([...known.blocks, known.tail].join('')).toBe(TEXT)
  }
})

test('what is settled is not parsed again', () => {
  const seen: string[] = []
  const watched = (text: string) => (seen.push(text), lex(text))
  const first = settle(NOTHING, 'One.\n\nTwo.\n\nThr', watched)
  settle(first, 'One.\n\nTwo.\n\nThree.', watched)
  expect(seen[1]).toBe('Two.\n\nThree.')
})

test('a text that was replaced begins anew', () => {
  const first = settle(NOTHING, 'One.\n\nTwo.\n\nThr', lex)
  const next = settle(first, 'Une.\n\nTwo.\n\nThree.', lex)
  expect([...next.blocks, next.tail].join('')).toBe('Une.\n\nTwo.\n\nThree.')
})
