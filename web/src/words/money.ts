/** Amounts in the words of the page. Costs come in millionths of a dollar. */

/** "$0.31"; below a cent two significant digits ("$0.0041"); nothing is rounded to nothing. */
export function money(micro: number): string {
  const dollars = Math.abs(micro) / 1e6
  const sign = micro < 0 ? '−' : ''
  if (dollars === 0) return '$0.00'
  if (dollars >= 0.01) return `${sign}$${dollars.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`
  const digits = Math.min(6, 1 - Math.floor(Math.log10(dollars)))
  return `${sign}$${Number(dollars.toPrecision(2)).toFixed(digits)}`
}

/** A cost in a table: a dash where none is known. */
export function cost(micro: number | null): string {
  return micro === null ? '–' : money(micro)
}

/** A sum that says nothing of prices: tokens that cost nothing have no known price, and that is not "$0.00". */
export function total(micro: number, tokens: number): string {
  return cost(micro === 0 && tokens > 0 ? null : micro)
}

/** What calls cost together, in a sentence. */
export function costOf(calls: readonly { tokens: number; cost: number | null }[], micro: number): string {
  if (!calls.some((call) => call.tokens > 0 && call.cost === null)) return money(micro)
  return micro ? `at least ${money(micro)}` : 'price unknown'
}

/** "41,207" */
export function whole(count: number): string {
  return count.toLocaleString('en-US')
}

/** "920", "7.4k", "41k", "1.2M" */
export function short(count: number): string {
  if (count < 1000) return String(count)
  if (count < 9950) return `${(count / 1000).toFixed(1)}k`
  if (count < 999_500) return `${Math.round(count / 1000)}k`
  return `${(count / 1e6).toFixed(count < 9_950_000 ? 1 : 0)}M`
}

/** "1 step", "8 steps" */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`
}

/** A limit as it is written in a field: "500,000", "$5.00", "none". */
export function amount(measure: string, value: number | null): string {
  if (!value) return 'none'
  return measure.startsWith('cost') ? money(value) : whole(value)
}

/** What was written in a limit's field, in the unit that is stored; null if it is no amount. "none" and "" are 0. */
export function parseAmount(measure: string, text: string): number | null {
  const plain = text.trim().toLowerCase()
  if (plain === '' || plain === 'none') return 0
  const match = /^\$?\s*([\d,._\s]*\d(?:\.\d+)?)\s*([km]?)$/.exec(plain)
  if (!match?.[1]) return null
  const number = Number(match[1].replace(/[,_\s]/g, ''))
  if (!Number.isFinite(number)) return null
  const scaled = number * (match[2] === 'k' ? 1e3 : match[2] === 'm' ? 1e6 : 1)
  return Math.round(measure.startsWith('cost') ? scaled * 1e6 : scaled)
}

/** "1,204 bytes", "3.1 KB", "2.4 MB" */
export function bytes(count: number): string {
  if (count < 2000) return counted(count, 'byte')
  if (count < 2_000_000) return `${(count / 1000).toFixed(1)} KB`
  return `${(count / 1e6).toFixed(1)} MB`
}
