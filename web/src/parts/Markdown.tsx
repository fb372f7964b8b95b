/** Text of agents as HTML. The only place of the page that sets HTML, and it is cleaned last.
 *
 * Raw HTML and images are escaped before anything is parsed: even what the sanitiser would remove makes the
 * browser report it while it is parsed, and an image would tell an address that it was looked at. */

import DOMPurify from 'dompurify'
import { Marked } from 'marked'
import { memo, useMemo, useRef } from 'react'
import { settle, type Settled } from '../words/blocks'

const escape = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

const marked = new Marked({
  gfm: true, breaks: false, async: false,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) => escape(`[image: ${text || href}]`),
  },
})

const TAGS = [
  'p', 'br', 'strong', 'em', 'del', 'code', 'pre', 'blockquote', 'ul', 'ol', 'li', 'hr', 'a',
  'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'table', 'thead', 'tbody', 'tr', 'th', 'td',
]

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return
  if (!/^(https?:|mailto:)/i.test(node.getAttribute('href') ?? '')) node.removeAttribute('href')
  node.setAttribute('rel', 'noopener nofollow noreferrer')
  node.setAttribute('target', '_blank')
})

function html(text: string): TrustedHTML {
  return DOMPurify.sanitize(marked.parse(text, { async: false }), {
    ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ['href'], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_TRUSTED_TYPE: true,
  })
}

const NOTHING: Settled = { blocks: [], length: 0, tail: '' }
const lex = (text: string) => marked.lexer(text).map((token) => token.raw)

/** Text as HTML. A text that grows is parsed from its last two paragraphs on: what is before them no longer changes. */
export default memo(function Markdown({ text, grows = false }: { text: string; grows?: boolean }) {
  return grows ? <Growing text={text} /> : <Html text={text} className="prose" />
})

const Html = memo(function Html({ text, className }: { text: string; className: string }) {
  const made = useMemo(() => html(text), [text])
  return <div className={className} dangerouslySetInnerHTML={{ __html: made as unknown as string }} />
})

/** Finished blocks of a growing text, so many together that the browser can leave out those that are off the screen. */
const CHUNK = 32
const Chunk = memo(
  function Chunk({ blocks }: { blocks: readonly string[] }) {
    return <div className="chunk">{blocks.map((block, at) => <Html key={at} text={block} className="block" />)}</div>
  },
  (before, now) => before.blocks.every((block, at) => block === now.blocks[at]),
)

function Growing({ text }: { text: string }) {
  const known = useRef(NOTHING)
  const now = useMemo(() => (known.current = settle(known.current, text, lex)), [text])
  const chunks = Math.floor(now.blocks.length / CHUNK)
  return (
    <div className="prose">
      {Array.from({ length: chunks }, (_, at) => <Chunk key={`c${at}`} blocks={now.blocks.slice(at * CHUNK, (at + 1) * CHUNK)} />)}
      {now.blocks.slice(chunks * CHUNK).map((block, at) => <Html key={at} text={block} className="block" />)}
      {now.tail && <Html key={now.blocks.length % CHUNK} text={now.tail} className="block" />}
    </div>
  )
}
