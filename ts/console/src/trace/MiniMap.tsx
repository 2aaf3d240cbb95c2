import { useEffect, useRef } from "preact/hooks";
import { duration } from "../format.ts";
import { isDark } from "../theme.ts";
import { endOf, isError, type Tree } from "./layout.ts";

export interface Range {
  start: number;
  end: number;
}

interface Props {
  tree: Tree;
  range: Range;
  onRange: (range: Range) => void;
}

/** All spans on one small canvas; dragging over it chooses the time that the rows show. */
export function MiniMap({ tree, range, onRange }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<number | null>(null);
  const dark = isDark();
  const total = Math.max(1, tree.end);

  useEffect(() => {
    const element = canvas.current;
    if (!element || !box.current) return;
    const draw = () => paint(element, tree, total);
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [tree, dark]);

  const timeAt = (event: PointerEvent): number => {
    const bounds = box.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - bounds.left) / bounds.width)) * total;
  };
  const move = (event: PointerEvent) => {
    if (drag.current === null) return;
    const at = timeAt(event);
    if (Math.abs(at - drag.current) > total / 400) onRange({ start: Math.min(at, drag.current), end: Math.max(at, drag.current) });
  };
  const whole = range.start <= 0 && range.end >= total;
  return (
    <div
      ref={box} class="minimap" role="slider" tabIndex={0} aria-label="Time shown: drag to zoom, double click for all, + and - and the arrow keys"
      aria-valuemin={0} aria-valuemax={Math.round(total)} aria-valuenow={Math.round(range.start)} aria-valuetext={`${duration(range.start)} to ${duration(range.end)}`}
      onPointerDown={(event) => { drag.current = timeAt(event); box.current?.setPointerCapture(event.pointerId); }}
      onPointerMove={move} onPointerUp={() => { drag.current = null; }} onPointerCancel={() => { drag.current = null; }}
      onDblClick={() => onRange({ start: 0, end: total })}
      onKeyDown={(event) => {
        const next = zoomed(event.key, range, total);
        if (next) { event.preventDefault(); onRange(next); }
      }}
    >
      <canvas ref={canvas} />
      {!whole && <div class="brush" style={{ left: `${(range.start / total) * 100}%`, width: `${((range.end - range.start) / total) * 100}%` }} />}
    </div>
  );
}

export function zoomed(key: string, { start, end }: Range, total: number): Range | null {
  const width = end - start;
  const clamp = (from: number, size: number): Range => {
    const length = Math.min(total, Math.max(total / 1e5, size));
    const first = Math.min(total - length, Math.max(0, from));
    return { start: first, end: first + length };
  };
  switch (key) {
    case "+": case "=": return clamp(start + width / 4, width / 2);
    case "-": return clamp(start - width / 2, width * 2);
    case "ArrowLeft": return clamp(start - width / 5, width);
    case "ArrowRight": return clamp(start + width / 5, width);
    case "0": case "Home": return { start: 0, end: total };
    default: return null;
  }
}

function paint(canvas: HTMLCanvasElement, tree: Tree, total: number): void {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth * scale;
  const height = canvas.clientHeight * scale;
  if (!width || !height) return;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  const colours = new Map<string, string>();
  const colourOf = (kind: string): string => {
    let found = colours.get(kind);
    if (found === undefined) {
      found = style.getPropertyValue(`--${{ turn: "agent", step: "agent", approval: "warn", script: "memory" }[kind] ?? kind}`).trim() || style.getPropertyValue("--hook");
      colours.set(kind, found);
    }
    return found;
  };
  // Bars of one depth share a lane; the steps between them say little at this size.
  const depths = depthsOf(tree);
  const lanes = Math.min(10, 1 + Math.max(0, ...depths.values()));
  const lane = (height - 8 * scale) / lanes;
  for (const span of tree.byId.values()) {
    const depth = Math.min(lanes - 1, depths.get(span.id) ?? 0);
    const left = (span.start_ms / total) * width;
    const size = Math.max(scale, ((endOf(span, tree.end) - span.start_ms) / total) * width);
    context.globalAlpha = isError(span) ? 1 : 0.75;
    context.fillStyle = isError(span) ? style.getPropertyValue("--error") : colourOf(span.kind);
    context.fillRect(left, 4 * scale + depth * lane, size, Math.max(scale, lane - scale));
  }
}

function depthsOf(tree: Tree): Map<string, number> {
  const depths = new Map<string, number>();
  const stack = tree.roots.map((span) => ({ span, depth: 0 }));
  for (let next = stack.pop(); next; next = stack.pop()) {
    depths.set(next.span.id, next.depth);
    for (const child of tree.children.get(next.span.id) ?? []) stack.push({ span: child, depth: next.depth + 1 });
  }
  return depths;
}
