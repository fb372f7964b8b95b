import { expect, test } from 'vitest'
import { age, clock, countdown, span } from './durations'
import { amount, cost, costOf, money, parseAmount, short, total } from './money'
import { called } from './names'
import { tickClass, tone } from './status'

test('durations have two units at most', () => {
  expect([0, 0.041, 0.2, 14.2, 41, 60, 151, 3600, 7380, 90000].map(span)).toEqual(
    ['0 ms', '41 ms', '0.2 s', '14.2 s', '41 s', '1 min', '2 min 31 s', '1 h', '2 h 3 min', '1 d 1 h'])
})

test('ages have one unit, and what is to come says so', () => {
  const now = 1_000_000_000
  expect([1, 26, 250, 3 * 3600, 49 * 3600].map((s) => age(now - s * 1000, now))).toEqual(['now', '26 s', '4 min', '3 h', '2 d'])
  expect(age(now + 16 * 3600_000, now)).toBe('in 16 h')
})

test('a countdown ends at zero', () => {
  expect([462_000, 38_000, 500, 0, -9000].map((ms) => countdown(ms, 0))).toEqual(['7:42', '0:38', '0:01', '0:00', '0:00'])
  expect(clock(3723)).toBe('1:02:03')
})

test('costs below a cent keep two significant digits', () => {
  expect([0, 310_000, 10_000, 4_100, 410, 41, 3_740_000, 1_204_500_000].map(money)).toEqual(
    ['$0.00', '$0.31', '$0.01', '$0.0041', '$0.00041', '$0.000041', '$3.74', '$1,204.50'])
})

test('token counts are short', () => {
  expect([0, 920, 7426, 9_960, 41_207, 498_120, 999_600, 12_300_000].map(short)).toEqual(
    ['0', '920', '7.4k', '10k', '41k', '498k', '1.0M', '12M'])
})

test('limits are read as they are written', () => {
  expect(parseAmount('tokens', '500,000')).toBe(500_000)
  expect(parseAmount('tokens', '6.3k')).toBe(6300)
  expect(parseAmount('cost', '$5.00')).toBe(5_000_000)
  expect(parseAmount('calls', 'none')).toBe(0)
  expect(parseAmount('calls', 'lots')).toBeNull()
  expect(parseAmount('calls', '-3')).toBeNull()
  expect([amount('tokens', 500_000), amount('cost_micro', 5_000_000), amount('calls', 0), amount('calls', null)]).toEqual(
    ['500,000', '$5.00', 'none', 'none'])
})

test('a price that is not known is never shown as nothing', () => {
  expect([cost(null), cost(0), cost(41_000)]).toEqual(['–', '$0.00', '$0.04'])
  expect([total(0, 0), total(0, 900), total(41_000, 900)]).toEqual(['$0.00', '–', '$0.04'])
  const call = (tokens: number, cost: number | null) => ({ tokens, cost })
  expect([costOf([], 0), costOf([call(9, 0)], 0), costOf([call(9, null)], 0), costOf([call(9, null), call(9, 41_000)], 41_000), costOf([call(0, null)], 0)]).toEqual(
    ['$0.00', '$0.00', 'price unknown', 'at least $0.04', '$0.00'])
})

test('a state that is not known is shown as not reached', () => {
  expect(['open', 'ok', 'lost', 'error', 'whatever', null].map(tone)).toEqual(
    ['running', 'completed', 'interrupted', 'failed', 'planned', 'planned'])
})

test('a run is called as on the command line: by the id that was chosen for it', () => {
  expect(called({ id: 'first', display_id: 'bytj8h' })).toBe('first')
  expect(called({ id: '01m7v74cckdmcv1was9at2m99v', display_id: 'kwrayv' })).toBe('kwrayv')
})

test('a step of a run that waits is not shown as running', () => {
  expect(tickClass('open', 'waiting')).toBe('waiting')
  expect(tickClass('open', 'running')).toBe('running open')
})
