import { type Budget, type Pause, type Svc, SvcError } from '@svc-gateway/client';
import type { Command } from 'commander';
import { printable } from '../diagnostics/render.ts';
import { type CliContext, connect, type GatewayAccess, withAccess, withExitCodes } from './command.ts';
import { sentAtOf } from './effects-resolve.ts';
import { CommandFailure } from './ports.ts';
import { json, styled, table, type Terminal, wire } from './terminal.ts';

/** How many of each kind are asked for. */
const MOST = 50;
/** How many of each kind are shown. */
const SHOWN = 5;
/** A call that has run for longer than this is worth a look, ms. */
const LONG_MS = 120_000;

/** What stands in the way at the gateway: what `/readyz` says. */
interface Readiness {
  readonly ready: boolean;
  readonly parts?: readonly { readonly part: string; readonly message: string }[];
  readonly notes?: readonly { readonly part: string; readonly message: string }[];
}

/** One thing that the command looks at. */
interface Part {
  readonly name: string;
  /** How it is, in a line. */
  readonly text: string;
  /** Whether somebody has to do something about it. `null`: it cannot be told. */
  readonly needsSomebody: boolean | null;
  readonly head?: readonly string[];
  readonly rows?: readonly (readonly string[])[];
  /** What goes on from here. */
  readonly next?: string;
}

/** `svc status`: what waits for somebody, and what is stuck. */
export function addStatus(program: Command, { terminal, exit }: CliContext): void {
  const command = withAccess(
    program
      .command('status')
      .description('what is stuck, waits for somebody or is stopped, and the command that goes on'),
  ).action(async (options: GatewayAccess) => {
    const svc = await connect(options);
    const gateway = await gatewayPart(svc);
    const others = await Promise.all([
      part('unknown', () => unknownPart(svc)),
      part('running', () => runningPart(svc)),
      part('approvals', () => approvalsPart(svc)),
      part('pauses', async () => pausesPart((await svc.pauses.list()).pauses)),
      part('budgets', async () => budgetsPart((await svc.budgets.list()).budgets)),
    ]);
    const parts = [gateway, ...others];
    if (options.json) terminal.out(json(wire({ parts })));
    else for (const one of parts) show(terminal, one);
    if (parts.some(({ needsSomebody }) => needsSomebody === true)) exit(1);
    else if (parts.some(({ needsSomebody }) => needsSomebody === null)) exit(2);
  });
  withExitCodes(
    command,
    'nothing waits for somebody',
    'something does',
    'it cannot be told: no key, no answer, or the key may not see all of it',
  );
}

function show(terminal: Terminal, { name, text, needsSomebody, head, rows = [], next }: Part): void {
  const tone = needsSomebody === true ? 'red' : needsSomebody === null ? 'yellow' : 'green';
  terminal.out(`${styled(terminal, tone, name.padEnd(10))} ${printable(text)}`);
  if (head !== undefined && rows.length > 0) terminal.out(table(head, rows.slice(0, SHOWN)).replaceAll(/^/gm, '  '));
  if (rows.length > SHOWN) terminal.out(`  … and ${rows.length - SHOWN} more`);
  if (next !== undefined) terminal.out(`  ${next}`);
}

/** A part that the key may not see says so, and the others are shown. */
async function part(name: string, made: () => Promise<Omit<Part, 'name'>>): Promise<Part> {
  try {
    return { name, ...(await made()) };
  } catch (error) {
    if (error instanceof SvcError && error.status > 0)
      return { name, text: `cannot be told: ${error.message}`, needsSomebody: null };
    throw error;
  }
}

async function gatewayPart(svc: Svc): Promise<Part> {
  const { ready, parts = [], notes = [] } = await readiness(svc.baseUrl);
  const rows = [...parts, ...notes].map(({ part: of, message }) => [of, message]);
  const more = notes.length === 0 ? '' : '; somebody should look at this';
  const text = ready ? `takes calls${more}` : 'takes no calls';
  return { name: 'gateway', text, needsSomebody: !ready || notes.length > 0, head: ['part', 'what'], rows };
}

/** @throws CommandFailure */
async function readiness(baseUrl: string): Promise<Readiness> {
  try {
    const answer = await fetch(new URL('/readyz', baseUrl), { signal: AbortSignal.timeout(10_000) });
    const body = (await answer.json()) as Readiness;
    if (typeof body?.ready !== 'boolean') throw new Error(`it answers ${answer.status} with something else`);
    return body;
  } catch (error) {
    throw new CommandFailure(
      `${baseUrl} does not answer as a gateway does: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}

async function unknownPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { effects, nextCursor } = await svc.effects.list({ state: 'unknown', limit: MOST });
  const oldestFirst = effects.toSorted((one, other) => Date.parse(sentAtOf(one)) - Date.parse(sentAtOf(other)));
  const [first] = oldestFirst;
  if (first === undefined) return { text: 'no outcome is unknown', needsSomebody: false };
  return {
    text: `${counted(effects, nextCursor)} with an outcome that is unknown, the oldest for ${agoText(sentAtOf(first))}`,
    needsSomebody: true,
    head: ['effect', 'tool', 'target', 'idempotency key', 'sent', 'may arrive until'],
    rows: oldestFirst.map((effect) => [
      effect.effectId,
      effect.tool,
      effect.target,
      effect.idempotencyKey,
      sentAtOf(effect),
      'quiesceUntil' in effect ? effect.quiesceUntil : '',
    ]),
    next: 'Look at the upstream, then: svc effects resolve EFFECT --outcome happened|not_happened (not_happened only once it cannot arrive any more); where the tool declares a probe: svc effects probe EFFECT',
  };
}

async function runningPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { effects, nextCursor } = await svc.effects.list({ state: 'executing', limit: MOST });
  const long = effects.filter((effect) => Date.now() - Date.parse(sentAtOf(effect)) > LONG_MS);
  const running = effects.length === 0 ? 'nothing runs' : `${counted(effects, nextCursor)} under way`;
  return {
    text:
      long.length === 0 ? running : `${running}, ${long.length} of them for longer than ${LONG_MS / 60_000} minutes`,
    needsSomebody: long.length > 0,
    head: ['effect', 'tool', 'target', 'since'],
    rows: effects.toReversed().map((effect) => [effect.effectId, effect.tool, effect.target, sentAtOf(effect)]),
    ...(long.length === 0
      ? {}
      : { next: 'Each ends with the time-out of its tool, and is unknown then. Do not send it under another key.' }),
  };
}

async function approvalsPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { approvals, nextCursor } = await svc.approvals.list({ status: 'pending', limit: MOST });
  if (approvals.length === 0) return { text: 'nothing waits for a decision', needsSomebody: false };
  const byEnd = approvals.toSorted((one, other) => Date.parse(one.expiresAt) - Date.parse(other.expiresAt));
  return {
    text: `${counted(approvals, nextCursor, 'request')} for a decision`,
    needsSomebody: true,
    head: ['approval', 'what', 'by', 'ends'],
    rows: byEnd.map((approval) => [
      approval.id,
      approval.summary ?? `${approval.tool} on ${approval.target}`,
      approval.requestedBy.agentId,
      approval.expiresAt,
    ]),
    next: 'svc approvals show APPROVAL',
  };
}

function pausesPart(pauses: readonly Pause[]): Omit<Part, 'name'> {
  if (pauses.length === 0) return { text: 'nothing is paused', needsSomebody: false };
  return {
    text: `${pauses.length} in force`,
    // Nothing lifts such a one but a person.
    needsSomebody: pauses.some(({ until }) => until === null),
    head: ['pause', 'scope', 'by', 'since', 'until', 'reason'],
    rows: pauses.map(({ id, scope, by, createdAt, until, reason }) => [
      id,
      JSON.stringify(scope),
      by.user ?? by.keyId,
      createdAt,
      until ?? 'it is lifted',
      reason,
    ]),
    next: 'svc resume PAUSE',
  };
}

function budgetsPart(budgets: readonly Budget[]): Omit<Part, 'name'> {
  const tight = budgets.filter(({ level }) => level !== 'ok');
  if (tight.length === 0) return { text: 'none is low', needsSomebody: false };
  return {
    text: `${tight.length} low or exhausted`,
    needsSomebody: tight.some(({ level }) => level === 'exhausted'),
    head: ['budget', 'level', 'left', 'held', 'of', 'resets'],
    rows: tight.map(({ budget, unit, level, remaining, held, limit, resetsAt }) => [
      budget,
      level,
      String(remaining ?? ''),
      String(held ?? ''),
      `${limit ?? ''} ${unit}`,
      resetsAt ?? '',
    ]),
  };
}

/** `3 calls`; `50 calls or more` where there is another page. */
function counted(found: readonly unknown[], nextCursor: string | null, what = 'call'): string {
  return `${found.length} ${what}${found.length === 1 ? '' : 's'}${nextCursor === null ? '' : ' or more'}`;
}

function agoText(at: string): string {
  const minutes = Math.max(0, Math.floor((Date.now() - Date.parse(at)) / 60_000));
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`;
}
