/** The pipeline as the server laid it out, with the run in it. Nodes are buttons. */

import { memo, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react'
import type { Geometry } from '../api/types'
import { tone } from '../words/status'
import { Icon } from './Icon'

const MARGIN = 28
const MANY = 400

interface View {
  x: number
  y: number
  scale: number
}

type Node = Geometry['nodes'][number]
const MARKS: Record<string, string> = { completed: 'M-4 .4-1.2 3.2 4-3.2', interrupted: 'M0-4.6V1M0 4.3v.3', failed: 'M-3-3l6 6M3-3l-6 6', waiting: 'M-1.8-1.8c.1-2.4 3.8-2.2 3.6 0 0 1.4-1.8 1.4-1.8 2.8M0 3.8v.2' }

export function Graph({ geometry, picked, current, onPick }: { geometry: Geometry; picked: string | null; current: string | null; onPick: (step: string) => void }) {
  const [wanted, setWanted] = useState(geometry.nodes.length <= MANY)
  if (!wanted)
    return <div className="none"><p>This pipeline has {geometry.nodes.length} nodes.</p><button type="button" className="btn" onClick={() => setWanted(true)}>Draw it</button></div>
  return <Canvas geometry={geometry} picked={picked} current={current} onPick={onPick} />
}

function Canvas({ geometry, picked, current, onPick }: { geometry: Geometry; picked: string | null; current: string | null; onPick: (step: string) => void }) {
  const box = useRef<HTMLDivElement>(null)
  const [size, setSize] = useState({ w: 400, h: 600 })
  const [view, setView] = useState<View | null>(null)
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null)
  const picks = useRef(onPick)
  picks.current = onPick
  const pick = useCallback((step: string) => picks.current(step), [])

  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => entry && entry.contentRect.width && setSize({ w: entry.contentRect.width, h: entry.contentRect.height }))
    if (box.current) watch.observe(box.current)
    return () => watch.disconnect()
  }, [])

  const fit = useCallback((): View => {
    const scale = Math.min(1.1, (size.w - 2 * MARGIN) / geometry.width, (size.h - 2 * MARGIN) / geometry.height)
    return { scale, x: (size.w - geometry.width * scale) / 2, y: Math.max(MARGIN, (size.h - geometry.height * scale) / 2) }
  }, [geometry, size])
  const show = useCallback((node: Node | undefined): View => {
    if (!node) return fit()
    const scale = Math.max(0.86, Math.min(1, (size.w - 2 * MARGIN) / geometry.width))
    const wide = geometry.width * scale + 2 * MARGIN > size.w
    return {
      scale,
      x: wide ? clamp(size.w / 2 - (node.x + node.w / 2) * scale, size.w - geometry.width * scale - MARGIN, MARGIN) : (size.w - geometry.width * scale) / 2,
      y: geometry.height * scale + 2 * MARGIN > size.h ? clamp(size.h * 0.42 - (node.y + node.h / 2) * scale, size.h - geometry.height * scale - MARGIN, MARGIN) : (size.h - geometry.height * scale) / 2,
    }
  }, [fit, geometry, size])

  // The view is chosen once; after that only the reader moves it, or "Follow".
  const at = geometry.nodes.find((node) => node.id === current)
  const shown = view ?? show(at ?? geometry.nodes[0])
  useEffect(() => {
    const follow = () => setView(show(at))
    document.addEventListener('onward:follow', follow)
    return () => document.removeEventListener('onward:follow', follow)
  }, [show, at])

  const zoom = (by: number, cx = size.w / 2, cy = size.h / 2) => {
    const scale = clamp(shown.scale * by, 0.1, 2.5)
    const share = scale / shown.scale
    setView({ scale, x: cx - (cx - shown.x) * share, y: cy - (cy - shown.y) * share })
  }
  const wheel = useRef(zoom)
  wheel.current = zoom
  const pan = useRef(setView)
  useEffect(() => {
    const element = box.current
    const turned = (event: WheelEvent) => {
      event.preventDefault()
      const from = element!.getBoundingClientRect()
      if (event.ctrlKey || event.metaKey) wheel.current(Math.exp(-event.deltaY / 200), event.clientX - from.left, event.clientY - from.top)
      else pan.current(() => ({ ...last.current, x: last.current.x - event.deltaX, y: last.current.y - event.deltaY }))
    }
    element?.addEventListener('wheel', turned, { passive: false })
    return () => element?.removeEventListener('wheel', turned)
  }, [])
  const last = useRef(shown)
  last.current = shown

  return (
    <div
      ref={box} className="canvas"
      onPointerDown={(event) => { drag.current = { x: event.clientX, y: event.clientY, moved: false } }}
      onPointerMove={(event) => {
        const from = drag.current
        if (!from || !event.buttons) return
        const dx = event.clientX - from.x
        const dy = event.clientY - from.y
        if (!from.moved && Math.hypot(dx, dy) < 4) return
        if (!from.moved) event.currentTarget.setPointerCapture(event.pointerId)
        drag.current = { x: event.clientX, y: event.clientY, moved: true }
        setView({ ...shown, x: shown.x + dx, y: shown.y + dy })
      }}
      onPointerUp={() => setTimeout(() => (drag.current = null))}
    >
      <svg className="draw" role="group" aria-label="Graph of the pipeline">
        <defs>
          {['tip', 'tip taken'].map((kind) => (
            <marker key={kind} id={kind.replace(' ', '-')} viewBox="0 0 9 9" refX="8.4" refY="4.5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
              <g className={kind.includes('taken') ? 'taken' : ''}><path className="tip" d="M0 0 9 4.5 0 9Z" /></g>
            </marker>
          ))}
        </defs>
        <g transform={`translate(${shown.x} ${shown.y}) scale(${shown.scale})`}>
          <Wires geometry={geometry} />
          {geometry.nodes.map((node) => <NodeShape key={node.id} node={node} isPicked={!!picked && node.step === picked} onPick={pick} drag={drag} />)}
        </g>
      </svg>
      <Mini geometry={geometry} view={shown} size={size} />
      <div className="zoom">
        <button type="button" className="btn sm icon" aria-label="Zoom in" onClick={() => zoom(1.25)}><Icon name="plus" size="sm" /></button>
        <button type="button" className="btn sm icon" aria-label="Zoom out" onClick={() => zoom(0.8)}><Icon name="minus" size="sm" /></button>
        <button type="button" className="btn sm icon" aria-label="Show the whole graph" onClick={() => setView(fit())}><Icon name="fit" size="sm" /></button>
      </div>
    </div>
  )
}

const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, Math.min(low, high)), Math.max(low, high))

function Wires({ geometry }: { geometry: Geometry }) {
  return useMemo(() => {
    const edges = [...geometry.edges].sort((a, b) => Number(a.taken) - Number(b.taken))
    return (
      <g aria-hidden="true">
        {edges.map((edge, at) => (
          <g key={at} className={edge.taken ? 'taken' : ''}>
            <path className="wire" d={edge.path} markerEnd={`url(#${edge.taken ? 'tip-taken' : 'tip'})`} />
          </g>
        ))}
        {edges.map((edge, at) => {
          if (!edge.label || edge.label_x === null || edge.label_y === null) return null
          const text = edge.label.length > 34 ? `${edge.label.slice(0, 33)}…` : edge.label
          const width = text.length * 5.7 + 8
          return (
            <g key={at} className={edge.taken ? 'taken' : ''}>
              <rect className="halo" x={edge.label_x - width / 2} y={edge.label_y - 8.5} width={width} height={17} rx={3} />
              <text className="caption" x={edge.label_x} y={edge.label_y + 3.8}>{text}</text>
            </g>
          )
        })}
      </g>
    )
  }, [geometry])
}

/** Drawn again only if something of it changed: there may be hundreds, and every move of the view would draw them all. */
const NodeShape = memo(function NodeShape({ node, isPicked, onPick, drag }: { node: Node; isPicked: boolean; onPick: (step: string) => void; drag: { current: { moved: boolean } | null } }) {
  const kind = node.state === null || node.state === 'not reached' || node.state === 'not_reached' ? 'planned' : node.state === 'partial' ? 'completed' : tone(node.state)
  const words = (node.state ?? '').replaceAll('_', ' ')
  const step = node.step
  const pick = step ? () => !drag.current?.moved && onPick(step) : undefined
  const lines = wrap(node.label, node.w - (/iamond/.test(node.shape) ? node.w * 0.35 : 22))
  const dx = node.shape === 'component' ? 4 : node.shape === 'house' ? 0 : 0
  const cx = node.x + node.w / 2 + dx
  const cy = node.y + node.h / 2 + (node.shape === 'house' ? 7 : 0)
  const hasState = words !== ''
  const top = cy - ((lines.length - 1) * 17 + (hasState ? 17 : 0)) / 2
  const stateWidth = words.length * 5.6
  return (
    <g
      className={`${kind} ${kind === 'running' ? 'open' : ''} ${isPicked ? 'picked' : ''}`}
      {...(pick ? {
        role: 'button', tabIndex: 0, 'aria-pressed': isPicked, onClick: pick,
        onKeyDown: (event: React.KeyboardEvent) => (event.key === 'Enter' || event.key === ' ') && (event.preventDefault(), onPick(step!)),
      } : {})}
    >
      <title>{`${node.id}${node.label === node.id ? '' : `: ${node.label}`} (${node.kind})${words ? ` - ${words}` : ''}`}</title>
      <Outline node={node} />
      {lines.map((line, at) => <text key={at} className="label" x={cx} y={top + at * 17 + 4.5}>{`${line} `}</text>)}
      {hasState && (
        <>
          <g className="mark" transform={`translate(${cx - stateWidth / 2 - 4} ${top + lines.length * 17})`}>
            {MARKS[kind] ? <path d={MARKS[kind]} /> : kind === 'running' ? <circle className="on" r="3.4" /> : <circle r="3" />}
          </g>
          <text className="note" x={cx + 7} y={top + lines.length * 17 + 4}>{words}</text>
        </>
      )}
    </g>
  )
}, (a, b) => a.isPicked === b.isPicked && isSame(a.node, b.node))

const isSame = (a: Node, b: Node) => a === b || (a.state === b.state && a.step === b.step && a.label === b.label && a.x === b.x && a.y === b.y && a.w === b.w && a.h === b.h)

function Outline({ node: { shape, x, y, w, h } }: { node: Node }) {
  const r = x + w
  const b = y + h
  const mx = x + w / 2
  const my = y + h / 2
  const polygon = (points: number[][], className = 'shape') => <polygon className={className} points={points.map((point) => point.join(',')).join(' ')} />
  const octagon = (by: number, className: string) => polygon([[x + by + 9, y + by], [r - by - 9, y + by], [r - by, y + by + 9], [r - by, b - by - 9], [r - by - 9, b - by], [x + by + 9, b - by], [x + by, b - by - 9], [x + by, y + by + 9]], className)
  switch (shape) {
    case 'diamond':
      return polygon([[mx, y], [r, my], [mx, b], [x, my]])
    case 'Mdiamond': {
      const along = 8.1
      const across = (along * w) / h
      return (
        <>
          {polygon([[mx, y], [r, my], [mx, b], [x, my]])}
          <path className="inside" d={`M${mx - across} ${y + along}H${mx + across}M${mx - across} ${b - along}H${mx + across}M${x + across} ${my - along}V${my + along}M${r - across} ${my - along}V${my + along}`} />
        </>
      )
    }
    case 'hexagon':
      return polygon([[x + 16, y], [r - 16, y], [r, my], [r - 16, b], [x + 16, b], [x, my]])
    case 'parallelogram':
      return polygon([[x + 16, y], [r, y], [r - 16, b], [x, b]])
    case 'house':
      return polygon([[mx, y], [r, y + 14], [r, b], [x, b], [x, y + 14]])
    case 'tripleoctagon':
      return <>{octagon(0, 'shape')}{octagon(4, 'inside')}{octagon(8, 'inside')}</>
    case 'component':
      return (
        <>
          <rect className="shape" x={x} y={y} width={w} height={h} rx={2} />
          {[my - h / 5, my + h / 5].map((at) => <rect key={at} className="shape" x={x - 4} y={at - 4} width={12} height={8} rx={1} />)}
        </>
      )
    case 'Msquare':
      return (
        <>
          <rect className="shape" x={x} y={y} width={w} height={h} rx={2} />
          <path className="inside" d={`M${x + 9} ${y}L${x} ${y + 9}M${r - 9} ${y}L${r} ${y + 9}M${x + 9} ${b}L${x} ${b - 9}M${r - 9} ${b}L${r} ${b - 9}`} />
        </>
      )
    default:
      return <rect className="shape" x={x} y={y} width={w} height={h} rx={7} />
  }
}

/** A label in lines of at most this width; the server measured it the same way. */
function wrap(label: string, width: number): string[] {
  const most = Math.max(8, Math.floor(width / 7))
  const lines: string[] = []
  for (const word of label.split(/\s+/)) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + word.length + 1 <= most) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines.slice(0, 4)
}

function Mini({ geometry, view, size }: { geometry: Geometry; view: View; size: { w: number; h: number } }) {
  const needs = geometry.height * view.scale > size.h || geometry.width * view.scale > size.w
  const scale = Math.min(100 / geometry.width, 150 / geometry.height)
  const nodes = useMemo(() => geometry.nodes.map((node) => (
    <rect key={node.id} className={`shape ${node.state === null || node.state === 'not_reached' || node.state === 'not reached' ? 'planned' : tone(node.state)}`} x={node.x} y={node.y} width={node.w} height={node.h} rx={8} />
  )), [geometry])
  if (!needs) return null
  return (
    <div className="mini" aria-hidden="true">
      <svg width={geometry.width * scale} height={geometry.height * scale} viewBox={`0 0 ${geometry.width} ${geometry.height}`}>
        {nodes}
        <rect className="view" x={-view.x / view.scale} y={-view.y / view.scale} width={size.w / view.scale} height={size.h / view.scale} strokeWidth={1} vectorEffect="non-scaling-stroke" rx={6} />
      </svg>
    </div>
  )
}
