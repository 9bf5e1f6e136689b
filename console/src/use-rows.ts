import { observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from '@tanstack/virtual-core';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';

interface Rows {
  readonly height: number;
  readonly shown: readonly { readonly index: number; readonly top: number; readonly height: number }[];
}

/** Of a long list, the rows that are on the screen. The page scrolls, and not the list in it. */
export function useRows(list: RefObject<HTMLElement>, count: number, rowHeight: number): Rows {
  const [, redraw] = useState(0);
  const options = {
    count,
    estimateSize: () => rowHeight,
    overscan: 12,
    getScrollElement: () => window,
    observeElementRect: observeWindowRect,
    observeElementOffset: observeWindowOffset,
    scrollToFn: windowScroll,
    initialOffset: () => window.scrollY,
    scrollMargin: list.current === null ? 0 : list.current.getBoundingClientRect().top + window.scrollY,
    onChange: () => redraw((times) => times + 1),
  };
  const [rows] = useState(() => new Virtualizer<Window, Element>(options));
  rows.setOptions(options);
  useEffect(() => rows._didMount(), [rows]);
  useLayoutEffect(() => rows._willUpdate());
  return {
    height: rows.getTotalSize(),
    shown: rows.getVirtualItems().map(({ index, start, size }) => ({
      index,
      top: start - options.scrollMargin,
      height: size,
    })),
  };
}
