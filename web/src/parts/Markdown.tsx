/** Text of agents as HTML. The only place of the page that sets HTML, and it is cleaned last.
 *
 * Raw HTML and images are escaped before anything is parsed: even what the sanitiser would remove makes the
 * browser report it while it is parsed, and an image would tell an address that it was looked at. */

import DOMPurify from 'dompurify'
import { Marked } from 'marked'
import { memo, useMemo } from 'react'

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

export default memo(function Markdown({ text }: { text: string }) {
  const made = useMemo(() => html(text), [text])
  return <div className="prose" dangerouslySetInnerHTML={{ __html: made as unknown as string }} />
})
