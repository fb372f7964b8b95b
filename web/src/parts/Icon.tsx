/** The page's own icons: one path each, 16 pixels. */

const PATHS = {
  runs: 'M3 4h10M3 8h10M3 12h6',
  chat: 'M3 3.5h10a.5.5 0 0 1 .5.5v6.5a.5.5 0 0 1-.5.5H7l-3 2.5V11H3a.5.5 0 0 1-.5-.5V4a.5.5 0 0 1 .5-.5Z',
  gate: 'M5 2.8h6L14 8l-3 5.2H5L2 8Z M8 5.8v2.6 M8 10.4v.1',
  pipeline: 'M4.5 2.5h3v3h-3z M2.5 10.5h3v3h-3z M10 10.5h3v3h-3z M6 5.5v2.3H4v2.7 M6 7.8h5.5v2.7',
  worker: 'M3 3.5h10v4H3z M3 9.5h10v3H3z M5.5 5.5h.1 M5.5 11h.1',
  gauge: 'M2.5 11.5a5.5 5.5 0 1 1 11 0 M8 11.5l2.6-3.6',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Z M10.8 10.8 14 14',
  plus: 'M8 3.5v9M3.5 8h9',
  minus: 'M3.5 8h9',
  filter: 'M2.5 4h11M4.5 8h7M6.5 12h3',
  down: 'm4 6 4 4 4-4',
  next: 'm6 4 4 4-4 4',
  more: 'M3.5 8h.1M8 8h.1M12.5 8h.1',
  close: 'm4 4 8 8M12 4l-8 8',
  check: 'm3.5 8.4 3 3 6-6.8',
  retry: 'M3 8a5 5 0 1 0 1.6-3.7 M3 2.8v2.6h2.6',
  pause: 'M5.5 3.5v9 M10.5 3.5v9',
  play: 'M5 3.5v9l7-4.5Z',
  fork: 'M4.5 2.5v5.2c0 2 7 1 7 3v2.8 M4.5 7.5v6 M2.8 4.2l1.7-1.7 1.7 1.7',
  branch: 'M4.5 5.5v5 M4.5 5.5a1.4 1.4 0 1 0 0-2.8 1.4 1.4 0 0 0 0 2.8Z M4.5 13.3a1.4 1.4 0 1 0 0-2.8 1.4 1.4 0 0 0 0 2.8Z M11.5 6.5a1.4 1.4 0 1 0 0-2.8 1.4 1.4 0 0 0 0 2.8Z M11.5 6.5c0 3-7 1.5-7 4',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z M8 5v3.2l2 1.3',
  target: 'M8 13A5 5 0 1 0 8 3a5 5 0 0 0 0 10Z M8 1.8v2.4M8 11.8v2.4M1.8 8h2.4M11.8 8h2.4',
  fit: 'M3 6V3h3 M10 3h3v3 M13 10v3h-3 M6 13H3v-3',
  tool: 'M9.8 2.8a3.3 3.3 0 0 0-3.2 4.4l-4 4 2.2 2.2 4-4a3.3 3.3 0 0 0 4.3-4.2L11.2 7 9 4.8Z',
  model: 'M5 5h6v6H5z M8 2.5V5M8 11v2.5M2.5 8H5M11 8h2.5',
  file: 'M4 2.5h5l3 3v8H4z M9 2.5v3h3',
  send: 'M8 13V3.5 M4 7.2 8 3.2l4 4',
  end: 'M8 3v9.5 M4 8.8l4 4 4-4',
  copy: 'M5.5 5.5h7v7h-7z M10.5 5.5v-2h-7v7h2',
  agent: 'M8 3.2v9.6 M8 3.2C6.6 1.7 4 2.4 4.2 4.6 2.3 5 2.2 7.4 3.5 8 2 9.2 3.2 11.4 4.8 11.2 5 13 7.2 13.3 8 12.2 M8 3.2c1.4-1.5 4-.8 3.8 1.4C13.7 5 13.8 7.4 12.5 8c1.5 1.2.3 3.4-1.3 3.2-.2 1.8-2.4 2.1-3.2 1',
  key: 'M9.8 9.2a3.4 3.4 0 1 0-3-3L2.5 10.5v3h3V12H7v-1.5Z',
  theme: 'M8 2.5a5.5 5.5 0 1 0 5.5 5.5A4.4 4.4 0 0 1 8 2.5Z',
  out: 'M6.5 3H3v10h3.5 M7 8h6 M10.5 5.2 13.3 8l-2.8 2.8',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = '' }: { name: IconName; size?: '' | 'sm' | 'xs' }) {
  return (
    <svg className={`i ${size}`} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  )
}

export function Logo() {
  return (
    <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
      <rect width="24" height="24" rx="6.5" fill="var(--ink)" />
      <path d="M5 12h4.2M12.2 12h6.3M14.6 7.8l4.2 4.2-4.2 4.2" fill="none" stroke="var(--ink-inverse)" strokeWidth="2.1" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  )
}
