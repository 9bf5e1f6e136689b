import type { Profiler } from 'node:inspector';

/** What one stage of a call takes of the main thread, µs, and what it may take. */
export interface StageCost {
  readonly stage: string;
  readonly micros: number;
  readonly budget: number;
}

/**
 * The stages of a governed write on the embedded store, with their budgets: 220 µs in all. Code is of the stage of its
 * file; what is not ours (Node, native code) is of the stage that called it, and `Node itself` where none did. The only
 * WebAssembly is undici's parser.
 */
const STAGES: readonly { readonly stage: string; readonly budget: number; readonly files: RegExp }[] = [
  {
    stage: 'arrival and identity',
    budget: 10,
    files: /\/(identity|proxy\/(arrival|identities|path|query|route-table))\b/,
  },
  { stage: 'body, params and headers', budget: 14, files: /\/(json|proxy\/(governed|read-|collect-|decode-|headers))/ },
  {
    stage: 'checks and fingerprint',
    budget: 8,
    files: /\/(upstreams\/catalog|effects\/run\/(check-call|fingerprint|own-key))\b/,
  },
  { stage: 'policy', budget: 3, files: /\/policy\// },
  { stage: 'seal and salts', budget: 12, files: /\/(secrets|gateway\/sealed-store)\b/ },
  { stage: 'rules and records', budget: 24, files: /\/(records|effects\/steps)\// },
  { stage: 'the hop to the store', budget: 12, files: /\/stores\// },
  { stage: 'upstream', budget: 48, files: /\/(upstreams|undici)\/|^wasm:/ },
  { stage: 'receipt', budget: 22, files: /\/receipts\// },
  { stage: 'the run', budget: 8, files: /\/(effects|gateway|telemetry)\// },
  { stage: 'front door and answer', budget: 25, files: /\/(proxy|api|fastify|@fastify|find-my-way)\// },
];

const GARBAGE = { stage: 'garbage', budget: 8 };
const NODE = { stage: 'Node itself', budget: 26 };

/** Time in which the thread did nothing, or that belongs to the profiler. */
const NOT_WORK: ReadonlySet<string> = new Set(['(idle)', '(root)']);

/** @param micros what a call takes of the main thread, measured without the profiler */
export function stageCosts(profile: Profiler.Profile, micros: number): readonly StageCost[] {
  const ofNodes = new Map<number, string>();
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  function assign(node: Profiler.ProfileNode, caller: string): void {
    const { functionName, url } = node.callFrame;
    const own = functionName === '(garbage collector)' ? GARBAGE : STAGES.find(({ files }) => files.test(url));
    const stage = NOT_WORK.has(functionName) ? '' : (own?.stage ?? caller);
    ofNodes.set(node.id, stage);
    for (const id of node.children ?? []) {
      const child = nodes.get(id);
      if (child !== undefined) assign(child, stage === '' ? NODE.stage : stage);
    }
  }
  const [root] = profile.nodes;
  if (root !== undefined) assign(root, NODE.stage);
  const taken = new Map<string, number>();
  let all = 0;
  for (const [index, id] of (profile.samples ?? []).entries()) {
    const stage = ofNodes.get(id) ?? '';
    const time = profile.timeDeltas?.[index] ?? 0;
    if (stage === '') continue;
    taken.set(stage, (taken.get(stage) ?? 0) + time);
    all += time;
  }
  return [...STAGES, GARBAGE, NODE].map(({ stage, budget }) => ({
    stage,
    budget,
    micros: ((taken.get(stage) ?? 0) * micros) / Math.max(1, all),
  }));
}

/** A table for people. */
export function stageTable(costs: readonly StageCost[]): string {
  const sum = (of: (cost: StageCost) => number): number => costs.reduce((so, cost) => so + of(cost), 0);
  const all = { stage: 'in all', micros: sum(({ micros }) => micros), budget: sum(({ budget }) => budget) };
  return [...costs, all]
    .map(
      ({ stage, micros, budget }) =>
        `         ${stage.padEnd(26)}${String(Math.round(micros)).padStart(5)} µs   budget ${String(budget).padStart(4)}`,
    )
    .join('\n');
}
