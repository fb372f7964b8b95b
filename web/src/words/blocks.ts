/** A text that grows, in blocks: paragraphs, lists, code. Only the last two of them can still change. */

export interface Settled {
  blocks: readonly string[]
  /** How much of the text they are. */
  length: number
  /** What comes after them: it may still become something else. */
  tail: string
}

/** The blocks of a longer text. `lex` cuts a text into its blocks, which are its text again one after the other. */
export function settle(known: Settled, text: string, lex: (text: string) => readonly string[]): Settled {
  const isLonger = text.startsWith(known.tail, known.length) && startsWith(text, known.blocks)
  const { blocks, length } = isLonger ? known : { blocks: [], length: 0 }
  const found = lex(text.slice(length))
  // The last may be the beginning of an item of a list before it: "2" becomes "2. next".
  const real = found.flatMap((block, at) => (block.trim() ? [at] : []))
  const sure = found.slice(0, real.at(-2) ?? 0)
  const size = sure.reduce((sum, block) => sum + block.length, 0)
  return { blocks: sure.length ? [...blocks, ...sure.map(detached)] : blocks, length: length + size, tail: text.slice(length + size) }
}

/** A copy with memory of its own: a piece of a text keeps all of the text, and each block would keep another one. */
const detached = (text: string) => JSON.parse(JSON.stringify(text)) as string

function startsWith(text: string, blocks: readonly string[]): boolean {
  let at = 0
  return blocks.every((block) => {
    const is = text.startsWith(block, at)
    at += block.length
    return is
  })
}
