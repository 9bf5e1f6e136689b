import type { PinComparison, ToolState } from './compare.ts';

/** A tool beside its pin, as the API and `svc tools --json` show it. */
export function toolStateToWire(state: ToolState) {
  return {
    name: state.name,
    state: state.kind,
    ...(state.kind === 'unusable' && { why: state.why }),
    ...(state.kind === 'renamed' && { from: state.from }),
    ...(state.kind === 'changed' && { differences: state.differences }),
    ...('pin' in state && { pinned: state.pin.sha256 }),
    ...('live' in state && { sha256: state.live.sha256 }),
  };
}

export function comparisonToWire({ upstream, isUnchanged, about, tools }: PinComparison) {
  return { upstream, unchanged: isUnchanged, about, tools: tools.map(toolStateToWire) };
}
