/** Native dialogs: the browser keeps the focus inside, closes them on Esc and returns the focus. */

import { useLayoutEffect, useRef, type ReactNode } from 'react'

export function Dialog({ label, drawer = false, palette = false, onClose, children }: {
  label: string
  drawer?: boolean
  palette?: boolean
  onClose: () => void
  children: ReactNode
}) {
  const box = useRef<HTMLDialogElement>(null)
  // Closed while it is still in the document: only then the browser returns the focus.
  useLayoutEffect(() => {
    const dialog = box.current
    dialog?.showModal()
    return () => dialog?.close()
  }, [])
  return (
    <dialog
      ref={box} className={drawer ? 'drawer' : palette ? 'dialog palette' : 'dialog'} aria-label={label}
      onCancel={(event) => { event.preventDefault(); onClose() }}
      onClick={(event) => event.target === box.current && onClose()}
    >
      {children}
    </dialog>
  )
}

/** Asks once before something that cannot be taken back, and names what is lost. */
export function ConfirmDialog({ title, children, yes, danger = true, onYes, onClose }: {
  title: string
  children: ReactNode
  yes: string
  danger?: boolean
  onYes: () => void
  onClose: () => void
}) {
  return (
    <Dialog label={title} onClose={onClose}>
      <h2>{title}</h2>
      <div className="mid mt-2">{children}</div>
      <div className="line mt-5 justify-end">
        <button type="button" className="btn" autoFocus onClick={onClose}>Back</button>
        <button type="button" className={`btn ${danger ? 'danger' : 'ink'}`} onClick={() => { onClose(); onYes() }}>{yes}</button>
      </div>
    </Dialog>
  )
}
