import { expect, test } from 'vitest'
import { scaleOf } from './scale'

const s = (from: number, to: number) => ({ from: from * 1000, to: to * 1000 })

test('a stop of a day has as much room as one of a second', () => {
  const scale = scaleOf([s(0, 10), s(86_410, 86_420)], [], [s(10, 86_410)], { isTrue: false, width: 480 })
  const [band] = scale.bands
  expect(band!.right - band!.left).toBeCloseTo(0.09 / 1.09, 3)
  expect(scale.at(0)).toBe(0)
  expect(scale.at(86_420_000)).toBe(1)
  expect(scale.at(5000)).toBeCloseTo(0.25 / 1.09, 1)
})

test('at true scale everything has the room it took', () => {
  const scale = scaleOf([s(0, 10), s(30, 40)], [], [s(10, 30)], { isTrue: true, width: 480 })
  expect(scale.at(20_000)).toBeCloseTo(0.5)
})

test('waiting for a person is not as long as the work', () => {
  const scale = scaleOf([s(0, 10), s(3610, 3620)], [s(10, 3610)], [], { isTrue: false, width: 480 })
  expect(scale.at(3610_000) - scale.at(10_000)).toBeLessThan(0.2)
})

test('positions never go back', () => {
  const scale = scaleOf([s(0, 5), s(2, 9), s(20, 21)], [s(9, 12)], [s(12, 20)], { isTrue: false, width: 480 })
  const places = Array.from({ length: 43 }, (_, at) => scale.at(at * 500))
  expect(places).toEqual([...places].sort((a, b) => a - b))
  expect(scaleOf([], [], [], { isTrue: false, width: 480 }).at(7)).toBe(0)
})

test('a run that has one instant only has a scale', () => {
  const scale = scaleOf([{ from: 5, to: 5 }], [], [], { isTrue: false, width: 480 })
  expect(scale.at(5)).toBe(0)
  expect(scale.labels).toEqual([])
})

test('where there is no room, the newest stop keeps its duration and no label covers another', () => {
  const scale = scaleOf([s(0, 10), s(20, 30), s(40, 90)], [], [s(10, 20), s(30, 40)], { isTrue: false, width: 120 })
  expect(scale.bands.map((band) => band.isNamed)).toEqual([false, true])
  const taken = [(scale.bands[1]!.left + scale.bands[1]!.right) / 2, ...scale.labels.map((label) => label.at)].sort((a, b) => a - b)
  taken.slice(1).forEach((at, before) => expect((at - taken[before]!) * 120).toBeGreaterThanOrEqual(50))
})

test('working, waiting and being stopped are counted apart', () => {
  const scale = scaleOf([s(0, 10), s(60, 62)], [s(10, 50)], [s(50, 60)], { isTrue: true, width: 1 })
  expect(scale.spent).toEqual({ work: 12_000, wait: 40_000, stop: 10_000 })
})

test('a run of thousands of steps is placed', () => {
  const work = Array.from({ length: 4000 }, (_, at) => ({ from: at * 10, to: at * 10 + 6 }))
  const scale = scaleOf(work, [], [{ from: 12_006, to: 12_010 }], { isTrue: true, width: 600 })
  expect(scale.spent).toEqual({ work: 24_000, wait: 0, stop: 4 })
  expect([scale.at(0), scale.at(39_996)]).toEqual([0, 1])
})
