/** A menu below its button, in the top layer. Arrow keys move, Esc closes and returns the focus. */

import { useId, useRef, useState, type ReactNode } from 'react'

export interface Choice {
  label: ReactNode
  act?: () => void
  danger?: boolean
  checked?: boolean
  off?: string
}

export function Menu({ button, className, label, choices, right = false }: {
  button: ReactNode
  className: string
  label?: string
  choices: readonly Choice[]
  right?: boolean
}) {
  const opener = useRef<HTMLButtonElement>(null)
  const list = useRef<HTMLDivElement>(null)
  const [open, setOpen] = useState(false)
  const id = useId()

  const toggled = (event: { newState: string }) => {
    const is = event.newState === 'open'
    setOpen(is)
    if (!is || !opener.current || !list.current) return
    const from = opener.current.getBoundingClientRect()
    const box = list.current
    const width = box.offsetWidth
    box.style.left = `${Math.max(8, Math.min(right ? from.right - width : from.left, innerWidth - width - 8))}px`
    const below = from.bottom + 4
    box.style.top = `${below + box.offsetHeight > innerHeight - 8 ? Math.max(8, from.top - 4 - box.offsetHeight) : below}px`
    const items = box.querySelectorAll<HTMLElement>('button')
    ;([...items].find((item) => item.getAttribute('aria-checked') === 'true') ?? items[0])?.focus()
  }
  const moved = (event: React.KeyboardEvent) => {
    const items = [...(list.current?.querySelectorAll<HTMLElement>('button') ?? [])]
    const at = items.indexOf(document.activeElement as HTMLElement)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key]
    if (to === undefined) return
    event.preventDefault()
    items.at(to % items.length)?.focus()
  }
  const choose = (choice: Choice) => {
    if (choice.off) return
    list.current?.hidePopover()
    opener.current?.focus()
    choice.act?.()
  }

  return (
    <>
      <button ref={opener} type="button" className={className} popoverTarget={id} aria-haspopup="menu" aria-expanded={open} aria-label={label} title={label}>
        {button}
      </button>
      <div ref={list} id={id} popover="auto" role="menu" aria-label={label ?? 'Menu'} className="menu" onToggle={toggled} onKeyDown={moved}>
        {open && choices.map((choice, index) => (
          <button
            key={index} type="button" tabIndex={-1} className={choice.danger ? 'danger' : ''}
            role={choice.checked === undefined ? 'menuitem' : 'menuitemradio'} aria-checked={choice.checked}
            aria-disabled={choice.off ? true : undefined} title={choice.off} onClick={() => choose(choice)}
          >
            <span className="grow">{choice.label}</span>
            {choice.checked && <span aria-hidden="true">✓</span>}
          </button>
        ))}
      </div>
    </>
  )
}
