import type { ComponentChildren } from "preact";
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  count: number;
  rowHeight: number;
  /** Draw row `index`; its wrapper is positioned already. */
  render: (index: number) => ComponentChildren;
  /** A row that must be in sight; scrolled to when it changes. */
  reveal?: number;
  class?: string;
  role?: "list" | "tree" | "listbox" | "table" | "presentation";
  label?: string;
  activeId?: string;
  onKeyDown?: (event: KeyboardEvent) => void;
  onEnd?: () => void;
}

const OVERSCAN = 8;

/** Rows of one height, of which only those in sight exist; ten thousand cost as much as forty. */
export function Virtual({ count, rowHeight, render, reveal, role, label, activeId, onKeyDown, onEnd, ...rest }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ first: 0, last: 40 });

  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - OVERSCAN);
    const last = Math.min(count, Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + OVERSCAN);
    setRange((now) => (now.first === first && now.last === last ? now : { first, last }));
    if (onEnd && last >= count) onEnd();
  }, [count, rowHeight, onEnd]);

  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [measure]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element || reveal === undefined || reveal < 0) return;
    const top = reveal * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight - element.clientHeight;
  }, [reveal, rowHeight]);

  const rows = [];
  for (let index = range.first; index < Math.min(range.last, count); index++) {
    rows.push(
      <div class="at" key={index} style={{ top: `${index * rowHeight}px`, height: `${rowHeight}px` }} role="presentation">
        {render(index)}
      </div>,
    );
  }
  return (
    <div
      ref={box} class={`virtual ${rest.class ?? ""}`} onScroll={measure} role={role} aria-label={label} tabIndex={0}
      aria-activedescendant={activeId} onKeyDown={onKeyDown}
    >
      <div class="space" role="presentation" style={{ height: `${count * rowHeight}px` }}>{rows}</div>
    </div>
  );
}
