import { readFileSync } from 'node:fs';
import type { Plugin } from 'vitest/config';

/** One line of the product, and what somebody might write instead. */
interface Fault {
  readonly file: string;
  readonly line: string;
  readonly instead: string;
  /** Folder whose modules are asked for with the fault as well: the fault is deeper than the module that is asked for. */
  readonly within?: readonly string[];
}

/** The records, and the table by which they find the steps. */
const RECORDS: readonly string[] = ['src/records/', 'src/effects/steps/table.ts'];

/**
 * Faults that tests plant in the product's own code, to see that they are noticed. A module is asked for with a fault
 * in it as `…/settlement.ts?planted=delete-on-error`. A line that is not there any more is an error: a fault is never
 * silently absent.
 */
export const FAULTS = {
  'delete-on-error': {
    file: 'src/effects/steps/settlement.ts',
    line: "binding: life.state === 'denied' ? 'release' : 'keep'",
    instead: "binding: life.state === 'committed' ? 'keep' : 'release'",
  },
  'never-late': {
    file: 'src/effects/run/execute.ts',
    line: 'return elapsedMs >= lease.dispatchBy - lease.admittedAt;',
    instead: 'return elapsedMs === Number.POSITIVE_INFINITY;',
  },
  'redirect-is-a-refusal': {
    file: 'src/upstreams/http/answer.ts',
    line: "return row(status === 301 || status === 302 || status === 303 ? 'unknown' : 'failed', 'http_status', reason);",
    instead: "return row('failed', 'http_status', reason);",
  },
  'error-is-a-failure': {
    file: 'src/upstreams/http/answer.ts',
    line: "return row(REFUSALS.has(status) ? 'failed' : 'unknown', 'http_status', reason);",
    instead: "return row('failed', 'http_status', reason);",
  },
  'follow-a-redirect': {
    file: 'src/upstreams/http/http-upstream.ts',
    line: 'return attemptOn(upstream, sending, options, (outcome) =>',
    instead:
      'const once = () => attemptOn(upstream, sending, options, (one) => one);' +
      "const follow = (one) => (one.kind === 'answer' && one.status === 303 ? once() : one);" +
      'return once().then(follow).then((outcome) =>',
  },
  'guard-dropped': {
    file: 'src/records/draft.ts',
    line: 'if (!all && isPut(entry)) continue;',
    instead: 'if (!all) continue;',
    within: RECORDS,
  },
  'guard-on-the-wrong-row': {
    file: 'src/records/draft.ts',
    line: 'guarded.push(follow === undefined ? { kind, id, version } : { kind, id, version, follow });',
    instead: 'guarded.push({ kind, id: `another ${id}`, version: ABSENT });',
    within: RECORDS,
  },
  'sum-without-its-limit': {
    file: 'src/records/counters.ts',
    line: 'limit: limit === null ? null : (change.most ?? limit),',
    instead: 'limit: null,',
    within: RECORDS,
  },
  'cap-without-its-limit': {
    file: 'src/records/counted.ts',
    line: 'draft.sum(capChange(name, 1, limit));',
    instead: 'draft.sum(capChange(name, 1, null));',
    within: RECORDS,
  },
  'what-is-over-counts-still': {
    file: 'src/records/view.ts',
    line: 'if (count >= limit) this.#observer.reached(name);',
    instead: '',
    within: RECORDS,
  },
  'given-back-again': {
    file: 'src/records/counted.ts',
    line: 'countedRows.put(draft, thing, names.length === 0 ? null : { caps: names, until });',
    instead: 'if (names.length > 0) countedRows.put(draft, thing, { caps: names, until });',
    within: RECORDS,
  },
  'released-claim-counts-still': {
    file: 'src/records/held-rows.ts',
    line: 'if (is === null) countNoMore(draft, countedClaim(target));',
    instead: 'if (is === null) return;',
    within: RECORDS,
  },
  'moved-is-taken-for-done': {
    file: 'src/records/runner.ts',
    line: "        if (answer.kind === 'done') {\n          recent.done",
    instead: '        if (answer.kind.length > 0) {\n          recent.done',
    within: RECORDS,
  },
  'lost-answer-is-not-looked-for': {
    file: 'src/records/effect-store.ts',
    line: 'if (error instanceof StoreUnavailable) lostAnswers.lost(request);',
    instead: '',
    within: RECORDS,
  },
  'another-attempt-is-taken-for-the-lost-one': {
    file: 'src/effects/upkeep/lost-answers.ts',
    line: 'if (fence.nonce !== nonce) return false;',
    instead: '',
    within: RECORDS,
  },
  'settlement-is-not-recognised': {
    file: 'src/effects/steps/settlement.ts',
    line: "if (life.receipt.jws === request.outcome.receipt.jws) return { reply: { kind: 'settled' } };",
    instead: '',
    within: RECORDS,
  },
  'memory-survives-a-refusal': {
    file: 'src/records/recent-rows.ts',
    line: 'drop: (change) => end(change, false),',
    instead: 'drop: () => {},',
    within: RECORDS,
  },
  'stale-figure': {
    file: 'src/records/runner.ts',
    line: 'const begin = (): Known => ({ rows: new Map(), isRead: false, counters: new Map(),',
    instead:
      'const figuresKept = new Map<string, Counter>();' +
      'const begin = (): Known => ({ rows: new Map(), isRead: false, counters: figuresKept,',
    within: RECORDS,
  },
  'unknown-does-not-restrict': {
    file: 'src/policy/compiled-condition.ts',
    line: 'return test.judge(input, item) ?? unknownIs;',
    instead: 'return test.judge(input, item) ?? false;',
    within: ['src/policy/', 'src/gateway/core-ports.ts'],
  },
  // The self-test of policies has no elements: this one is not noticed at the start.
  'unknown-elements-do-not-restrict': {
    file: 'src/policy/compiled-condition.ts',
    // As it stands in `dist/`, too.
    line: 'if (!isList(value) || value.length > MAX_ELEMENTS)',
    instead: 'if (!isList(value)) return false; if (value.length > MAX_ELEMENTS)',
  },
  'answer-before-the-sync': {
    file: 'src/stores/embedded/sync-queue.ts',
    line: 'fdatasync(descriptor, ended);',
    instead: 'ended(null);',
  },
} as const satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof FAULTS;

const QUERY = '?planted=';

function faultOf(name: string): Fault | undefined {
  return Object.entries(FAULTS).find(([known]) => known === name)?.[1];
}

/** Puts the faults into the modules that are asked for with one. */
function isWithin(file: string, paths: readonly string[]): boolean {
  return paths.some((path) => file.includes(`/${path}`));
}

export function plantFaults(): Plugin {
  return {
    name: 'planted-faults',
    enforce: 'pre',
    async resolveId(source, importer) {
      const at = importer?.indexOf(QUERY) ?? -1;
      if (importer === undefined || at < 0 || source.includes(QUERY)) return null;
      const query = importer.slice(at);
      const fault = faultOf(query.slice(QUERY.length));
      const found = fault?.within === undefined ? null : await this.resolve(source, importer.slice(0, at));
      if (fault?.within === undefined || found === null || found.id.includes(QUERY)) return null;
      return isWithin(found.id, fault.within) || found.id.endsWith(`/${fault.file}`) ? `${found.id}${query}` : null;
    },
    load(id) {
      const at = id.indexOf(QUERY);
      if (at < 0) return null;
      const file = id.slice(0, at);
      const name = id.slice(at + QUERY.length);
      const fault = faultOf(name);
      const text = readFileSync(file, 'utf8');
      if (fault?.within !== undefined && isWithin(file, fault.within) && !file.endsWith(`/${fault.file}`)) return text;
      if (fault === undefined || !file.endsWith(`/${fault.file}`)) throw new Error(`no fault ${name} for ${file}`);
      if (!text.includes(fault.line)) throw new Error(`${fault.file} does not say any more: ${fault.line}`);
      return text.replace(fault.line, () => fault.instead);
    },
  };
}

/**
 * A module of the product with a fault in it.
 * @param real the module without it, for its type
 */
export async function planted<Module>(_real: Module, name: FaultName): Promise<Module> {
  return plantedIn(_real, FAULTS[name].file, name);
}

/**
 * A module of the product with a fault in what it imports.
 * @param file of the module, from the root
 */
export async function plantedIn<Module>(_real: Module, file: string, name: FaultName): Promise<Module> {
  const url = new URL(`../${file}`, import.meta.url);
  return import(/* @vite-ignore */ `${url.pathname}${QUERY}${name}`);
}
