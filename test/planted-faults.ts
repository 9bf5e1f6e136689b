import { readFileSync } from 'node:fs';
import type { Plugin } from 'vitest/config';

/** One line of the product, and what somebody might write instead. */
interface Fault {
  readonly file: string;
  readonly line: string;
  readonly instead: string;
}

/**
 * Faults that tests plant in the product's own code, to see that they are noticed. A module is asked for with a fault
 * in it as `…/settlement.ts?planted=delete-on-error`. A line that is not there any more is an error: a fault is never
 * silently absent.
 */
export const FAULTS = {
  'delete-on-error': {
    file: 'src/effects/settlement.ts',
    line: "binding: life.state === 'denied' ? 'release' : 'keep'",
    instead: "binding: life.state === 'committed' ? 'keep' : 'release'",
  },
  'never-late': {
    file: 'src/effects/execute.ts',
    line: 'return elapsedMs >= lease.dispatchBy - lease.admittedAt;',
    instead: 'return elapsedMs === Number.POSITIVE_INFINITY;',
  },
  'redirect-is-a-refusal': {
    file: 'src/upstreams/classify.ts',
    line: "return row(status === 301 || status === 302 || status === 303 ? 'unknown' : 'failed', 'http_status', said);",
    instead: "return row('failed', 'http_status', said);",
  },
  'error-is-a-failure': {
    file: 'src/upstreams/classify.ts',
    line: "return row(REFUSALS.has(status) ? 'failed' : 'unknown', 'http_status', said);",
    instead: "return row('failed', 'http_status', said);",
  },
  'follow-a-redirect': {
    file: 'src/upstreams/http-upstream.ts',
    line: 'const result = await attemptOn(upstream, request, options);',
    instead:
      'const first = await attemptOn(upstream, request, options);' +
      "const follows = first.kind === 'answer' && first.status === 303;" +
      'const result = follows ? await attemptOn(upstream, request, options) : first;',
  },
  'answer-before-the-sync': {
    file: 'src/stores/embedded/behind.ts',
    line: 'fdatasync(descriptor, ended);',
    instead: 'ended(null);',
  },
} as const satisfies Readonly<Record<string, Fault>>;

export type FaultName = keyof typeof FAULTS;

const QUERY = '?planted=';

/** Puts the faults into the modules that are asked for with one. */
export function plantFaults(): Plugin {
  return {
    name: 'planted-faults',
    enforce: 'pre',
    load(id) {
      const at = id.indexOf(QUERY);
      if (at < 0) return null;
      const file = id.slice(0, at);
      const name = id.slice(at + QUERY.length);
      const fault = Object.entries(FAULTS).find(([known]) => known === name)?.[1];
      if (fault === undefined || !file.endsWith(`/${fault.file}`)) throw new Error(`no fault ${name} for ${file}`);
      const text = readFileSync(file, 'utf8');
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
  const url = new URL(`../${FAULTS[name].file}`, import.meta.url);
  return import(/* @vite-ignore */ `${url.pathname}${QUERY}${name}`);
}
