// After `vite build`: absolute addresses and a font preload in index.html, compressed copies beside every
// file, and the budgets. The build fails over budget.
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const dist = new URL('../dist/', import.meta.url).pathname
const FIRST_LOAD_KB = 200 // gzip, with the font (dashboard budget)
const RUN_PAGE_KB = 60 // what the run page adds

const files = (folder) =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? files(join(folder, entry.name)) : [join(folder, entry.name)],
  )

const all = files(dist).filter((path) => !/\.(br|gz)$/.test(path))
for (const path of files(dist)) if (!all.includes(path)) rmSync(path)

const index = join(dist, 'index.html')
const font = all.find((path) => path.endsWith('.woff2'))
let html = readFileSync(index, 'utf8').replaceAll('"./', '"/').replaceAll(' crossorigin', '')
if (font && !html.includes('as="font"'))
  html = html.replace(
    '</title>',
    `</title>\n    <link rel="preload" href="/assets/${font.split('/').pop()}" as="font" type="font/woff2" crossorigin>`,
  )
if (/<script(?![^>]*src=)/.test(html) || /\sstyle=/.test(html)) throw new Error('index.html has inline code')
writeFileSync(index, html)

const size = new Map()
for (const path of all) {
  const bytes = readFileSync(path)
  const zipped = gzipSync(bytes, { level: 9 })
  size.set(path, path.endsWith('.woff2') ? bytes.length : zipped.length)
  if (path.endsWith('.woff2')) continue
  writeFileSync(`${path}.gz`, zipped)
  writeFileSync(
    `${path}.br`,
    brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }),
  )
}

const kb = (paths) => paths.reduce((sum, path) => sum + (size.get(path) ?? 0), 0) / 1024
const named = [...html.matchAll(/(?:src|href)="\/(assets\/[^"]+)"/g)].map((match) => join(dist, match[1]))
const first = [...new Set([index, ...named, ...(font ? [font] : [])])]
const lazy = all.filter((path) => path.includes('/assets/') && !first.includes(path))
const run = lazy.filter((path) => /\/(Run|Markdown|Graph|run)[-.]/.test(path))
console.log(`first load ${kb(first).toFixed(1)} KB of ${FIRST_LOAD_KB}, run page ${kb(run).toFixed(1)} KB of ${RUN_PAGE_KB}`)
for (const path of [...first, ...lazy])
  console.log(`  ${((size.get(path) ?? 0) / 1024).toFixed(1).padStart(6)} KB  ${path.slice(dist.length)}${statSync(path) && lazy.includes(path) ? '  (later)' : ''}`)
if (kb(first) > FIRST_LOAD_KB || kb(run) > RUN_PAGE_KB) {
  console.error('over budget')
  process.exit(1)
}
