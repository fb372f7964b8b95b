/** What is spent and reserved of a limit. */

export function Meter({ spent, reserved, limit, isStopped = false, isWarned = false }: { spent: number; reserved: number; limit: number | null; isStopped?: boolean; isWarned?: boolean }) {
  if (!limit) return <div className="meter" aria-hidden="true" />
  const share = Math.min(100, (spent / limit) * 100)
  const kind = spent >= limit ? 'bad' : isStopped || isWarned || share >= 80 ? 'warn' : ''
  return (
    <div className="meter" role="meter" aria-label="Spent of the limit" aria-valuemin={0} aria-valuemax={limit} aria-valuenow={Math.min(spent, limit)}>
      <i className={kind} style={{ width: `${share}%` }} />
      {reserved > 0 && <i className="res" style={{ width: `${Math.min(100 - share, (reserved / limit) * 100)}%` }} />}
    </div>
  )
}
