/** What needs me? What runs? */

import { useInfiniteQuery } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { Link } from 'wouter'
import { listRuns, serverNow, type RunFilters } from '../api/client'
import { BulkBar } from '../parts/BulkBar'
import { FilterBar, SINCE } from '../parts/FilterBar'
import { FirstStart } from '../parts/FirstStart'
import { Icon } from '../parts/Icon'
import { RunTable } from '../parts/RunTable'
import { Title, useGates, useStats } from '../parts/Shell'
import { Empty, ErrorBox, Skeleton } from '../parts/States'
import { StatusGlyph } from '../parts/Status'
import { StartRun } from '../parts/StartRun'
import { Countdown } from '../parts/Time'
import { runFilters, search, useParams } from '../state/address'
import { useKeys } from '../state/keyboard'
import { keys } from '../state/keys'
import { useFollow, useLive } from '../state/live'
import { useRole } from '../state/me'
import { whole } from '../words/money'

export default function Runs() {
  const [params, change] = useParams()
  const filters = useMemo(() => runFilters(params), [params])
  const query = useInfiniteQuery({
    queryKey: keys.runs(filters),
    queryFn: ({ pageParam, signal }) => listRuns(asked(filters), pageParam, 50, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.cursor ?? undefined,
  })
  const runs = useMemo(() => query.data?.pages.flatMap((page) => page.runs) ?? [], [query.data])
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [at, setAt] = useState(-1)
  const [starts, setStarts] = useState(false)
  const scroller = useRef<HTMLDivElement>(null)
  const { fresh, seen } = useLive()
  const stats = useStats().data
  const may = useRole('operator')
  const isFiltered = Object.keys(filters).length > 0

  const [range, setRange] = useState(0)
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query
  const onSeen = useCallback((first: number, last: number) => {
    setRange(Math.floor(first / 100) * 100)
    if (hasNextPage && !isFetchingNextPage && last >= runs.length - 20) void fetchNextPage()
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, runs.length])
  // Rows near those on screen follow what happens; a new address of the stream only every 100 rows.
  const from = Math.max(0, range - 50)
  useFollow(query.data && { rows: runs.slice(from, from + 200).map((run) => run.id) })

  const readAgain = () => {
    seen()
    scroller.current?.scrollTo({ top: 0 })
    void query.refetch()
  }
  const { refetch } = query
  useEffect(() => {
    // At the top nobody reads a row that would move: new runs come in by themselves.
    if (!fresh || (scroller.current?.scrollTop ?? 0) > 0 || at >= 0) return
    const timer = setTimeout(() => { seen(); void refetch() }, 300)
    return () => clearTimeout(timer)
  }, [fresh, at, seen, refetch])

  useKeys({
    '/': () => document.getElementById('search')?.focus(),
    Escape: () => (selected.size ? setSelected(new Set()) : setAt(-1)),
  })
  const select = useCallback((id: string, on: boolean) => setSelected((before) => {
    const now = new Set(before)
    if (on) now.add(id)
    else now.delete(id)
    return now
  }), [])

  if (!isFiltered && query.data && !runs.length) return <FirstStart />
  return (
    <>
      <Title>Runs</Title>
      <div className="top">
        <h1>Runs</h1>
        {stats && <span className="dim num hide-s">{whole(stats.runs.total)}</span>}
        <span className="grow" />
        {may && <button type="button" className="btn ink" onClick={() => setStarts(true)}><Icon name="plus" size="sm" />Start run</button>}
      </div>
      <Needs filters={filters} />
      <FilterBar filters={filters} change={change} />
      {query.isError && !query.data ? <ErrorBox error={query.error} again={() => void query.refetch()} />
        : query.isPending ? <Skeleton />
        : !runs.length ? <Empty><p>No run matches.</p><button type="button" className="btn" onClick={() => change({ text: '', status: [], pipeline: '', chat: '', tag: '', since: '' })}>Clear filters</button></Empty>
        : (
          <RunTable
            runs={runs} at={at} setAt={setAt} selected={selected} onSelect={select} onSeen={onSeen} scroller={scroller}
            more={query.isFetchNextPageError ? <ErrorBox error={query.error} again={() => void fetchNextPage()} /> : isFetchingNextPage ? <Skeleton rows={3} /> : <div className="h-20" />}
          />
        )}
      {fresh > 0 && <button type="button" className="btn sm fresh" style={{ top: 196 }} onClick={readAgain}>{fresh} new</button>}
      <BulkBar runs={runs.filter((run) => selected.has(run.id))} onClear={() => setSelected(new Set())} />
      {starts && <StartRun onClose={() => setStarts(false)} />}
    </>
  )
}

/** The filters as the server takes them: an instant for "7 days". */
function asked(filters: RunFilters): RunFilters {
  const hours = filters.since && SINCE[filters.since]?.hours
  const { since: _, ...rest } = filters
  return hours ? { ...rest, since: new Date(serverNow() - hours * 3600_000).toISOString() } : rest
}

/** Four counters that filter: what waits, what can be resumed, what runs. */
function Needs({ filters }: { filters: RunFilters }) {
  const stats = useStats().data
  const gates = useGates().data?.gates
  const by = stats?.runs.by_status ?? {}
  const resumable = (status: string) =>
    stats?.runs.by_reason.filter((one) => one.status === status && one.recoverable).reduce((sum, one) => sum + one.runs, 0)
  const deadlines = (gates ?? []).flatMap((gate) => gate.deadline ?? []).sort()
  const workers = stats?.workers.length ?? 0
  const cards = [
    { status: 'waiting', count: by.waiting, says: 'wait for an answer', note: deadlines[0] && <>next in <Countdown until={deadlines[0]} /></> },
    { status: 'interrupted', count: resumable('interrupted'), says: 'interrupted, can resume', note: null },
    { status: 'failed', count: resumable('failed'), says: 'failed, can resume', note: null },
    { status: 'running', count: by.running, says: workers && by.running ? `running in ${workers} ${workers === 1 ? 'process' : 'processes'}` : 'running', note: by.queued ? `${whole(by.queued)} queued` : null },
  ]
  return (
    <section className="need" aria-label="Needs you">
      {cards.map(({ status, count, says, note }) => {
        const on = filters.status?.length === 1 && filters.status[0] === status
        return (
          <Link key={status} className={on ? 'on' : ''} aria-current={on ? 'true' : undefined} href={`/runs${search({ ...filters, status: on ? [] : [status] })}`}>
            <StatusGlyph of={status} />
            <b>{count === undefined ? '–' : whole(count)}</b>
            <em>{note}</em>
            <span>{says}</span>
          </Link>
        )
      })}
    </section>
  )
}
