/** The keys of the page. */

import { useStored } from '../state/prefs'
import { Dialog } from './Dialog'

const KEYS: readonly [string, string][] = [
  ['Ctrl+K', 'Search or jump to'],
  ['G R', 'Runs'], ['G C', 'Chats'], ['G G', 'Gates'], ['G L', 'Limits'],
  ['/', 'Search'], ['J K', 'Next, previous row'], ['Enter', 'Open'], ['X', 'Select'], ['R', 'Resume; in Gates reject'],
  ['A', 'In Gates approve, then Enter'], ['F', 'Fork'], ['[ ]', 'Previous, next step'], ['.', 'Follow'], ['T', 'Light or dark'], ['Esc', 'Close'],
]

export function Help({ onClose }: { onClose: () => void }) {
  const [letters, setLetters] = useStored('letters')
  return (
    <Dialog label="Keys" onClose={onClose}>
      <div className="line"><h2 className="grow">Keys</h2><button type="button" className="btn sm" autoFocus onClick={onClose}>Close</button></div>
      <dl className="grid gap-1.5 mt-4" style={{ gridTemplateColumns: '84px 1fr' }}>
        {KEYS.map(([key, says]) => <div key={key} style={{ display: 'contents' }}><dt>{key.split(' ').map((one) => <kbd key={one} className="mr-1">{one}</kbd>)}</dt><dd className="mid">{says}</dd></div>)}
      </dl>
      <label className="line mt-4"><input type="checkbox" className="box" checked={letters !== 'off'} onChange={(event) => setLetters(event.target.checked ? null : 'off')} />Single-letter keys</label>
    </Dialog>
  )
}
