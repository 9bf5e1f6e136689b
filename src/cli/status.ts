import {
  type Approval,
  type BudgetRow,
  type Effect,
  type Json,
  type JsonObject,
  type Svc,
  SvcError,
} from '@svc-gateway/client';
import type { Command } from 'commander';
import { printable } from '../diagnostics/render.ts';
import { amountText, currencyOfBucket } from '../effects/model/money.ts';
import { type CliContext, connect, type GatewayAccess, NAME_WORKSPACE, talksToGateway } from './command.ts';
import { sentAtOf } from './effects-resolve.ts';
import { CommandFailure, fetchFailure } from './ports.ts';
import { json, styled, table, type Terminal, wire } from './terminal.ts';

const MOST = 50;
const SHOWN = 5;
/** A call that has run for longer than this is worth a look, ms. */
const LONG_MS = 120_000;

/** How far back refused calls are looked for, ms. */
const LATELY_MS = 15 * 60_000;
const LATELY = `in the last ${LATELY_MS / 60_000} minutes`;
/** How far back requests are looked for that nobody decided on, ms. */
const DAY_MS = 24 * 3_600_000;

/** What stands in the way at the gateway: what `/readyz` says. */
interface Readiness {
  readonly ready: boolean;
  readonly parts?: readonly { readonly part: string; readonly message: string }[];
  readonly notes?: readonly { readonly part: string; readonly message: string; readonly since?: string }[];
}

interface Part {
  readonly name: string;
  /** How it is, in a line. */
  readonly text: string;
  /** Whether somebody has to do something about it. `null`: it cannot be told. */
  readonly needsSomebody: boolean | null;
  /** What is known of each thing, by name. In the table for people the names are the head. */
  readonly rows?: readonly JsonObject[];
  /** The same in sentences, which people are shown: no column holds them. */
  readonly lines?: readonly string[];
  /** What goes on from here. */
  readonly next?: string;
  /** The status with which the gateway refused to tell it. */
  readonly refusedWith?: number;
}

/** `svc status`: what waits for somebody, and what is stuck. */
export function addStatus(program: Command, { terminal, exit }: CliContext): void {
  talksToGateway(
    program
      .command('status')
      .description('what is stuck, waits for somebody or is stopped, and the command that goes on'),
  ).action(async (options: GatewayAccess) => {
    const svc = await connect(options);
    const gateway = await gatewayPart(svc);
    const granted = svc.approvals.list({ status: 'granted', limit: MOST });
    const others = await Promise.all([
      part('unknown', () => unknownPart(svc)),
      part('running', () => runningPart(svc)),
      part('approvals', () => approvalsPart(svc)),
      part('approved', async () => approvedPart(await granted)),
      part('expired', () => expiredPart(svc)),
      part('pauses', () => pausesPart(svc, granted)),
      part('budgets', async () => budgetsPart((await svc.budgets.list()).budgets)),
      part('refused', () => refusedPart(svc)),
    ]);
    const parts = [gateway, ...(options.json ? others : withOneCause(others))];
    if (options.json) terminal.out(json(wire({ parts })));
    else for (const one of parts) show(terminal, one);
    if (parts.some(({ needsSomebody }) => needsSomebody === true)) exit(1);
    else if (parts.some(({ needsSomebody }) => needsSomebody === null)) exit(2);
  });
}

/** What one cause keeps from being told, in one part. */
function withOneCause(parts: readonly Part[]): readonly Part[] {
  const isUntold = ({ needsSomebody }: Part): boolean => needsSomebody === null;
  return parts.flatMap((one) => {
    const alike = isUntold(one) ? parts.filter((other) => isUntold(other) && other.text === one.text) : [];
    if (alike.length < 2) return [one];
    if (alike[0] !== one) return [];
    const text = `cannot be told of ${alike.map(({ name }) => name).join(', ')}: ${one.text.replace(UNTOLD, '')}`;
    return [{ ...one, ...((one.refusedWith ?? 0) >= 500 ? AT_STORE : { name: 'key' }), text }];
  });
}

const AT_STORE = {
  name: 'store',
  next: 'svc doctor gateway.yaml, on the machine of the gateway, says how to mend it. What was sent stays recorded and is not sent again; the rest is told once the store answers.',
};

function show(terminal: Terminal, { name, text, needsSomebody, rows = [], lines, next }: Part): void {
  const tone = needsSomebody === true ? 'red' : needsSomebody === null ? 'yellow' : 'green';
  terminal.out(`${styled(terminal, tone, name.padEnd(10))} ${printable(text)}`);
  if (rows.length > 0 && rows.every(({ message }) => typeof message === 'string')) return tell(terminal, rows);
  if (lines === undefined) showRows(terminal, rows);
  else for (const line of lines) terminal.out(`  ${printable(line)}`);
  if (rows.length > SHOWN) terminal.out(`  … and ${rows.length - SHOWN} more`);
  if (next !== undefined) terminal.out(`  ${next}`);
}

function showRows(terminal: Terminal, rows: readonly JsonObject[]): void {
  const readable = rows.map(withMoney);
  const names = [...new Set(readable.flatMap(Object.keys))];
  const head = names.map((one) => one.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`));
  const cells = readable.slice(0, SHOWN).map((row) => names.map((one) => cellText(row[one] ?? '')));
  if (rows.length > 0) terminal.out(table(head, cells).replaceAll(/^/gm, '  '));
}

/** Amounts of a budget as people read them: as money where its currency is known. Scripts get the numbers. */
function withMoney(row: JsonObject): JsonObject {
  const { unit, bucket, ...others } = row;
  if (typeof unit !== 'string' || typeof bucket !== 'string') return row;
  const text = (of: Json): Json => (typeof of === 'number' ? amountText(of, unit, currencyOfBucket(bucket)) : of);
  const shown = Object.entries(others).map(([name, value]) => [name, text(value)] as const);
  // The bucket says whose budget it is: `["support-bot","EUR"]`.
  return { ...Object.fromEntries(shown), for: bucket };
}

/** Sentences, which no column holds. */
function tell(terminal: Terminal, rows: readonly JsonObject[]): void {
  for (const { part: about, code, since, message } of rows) {
    const head = [about, code, since].map((one) => cellText(one ?? ''));
    if (since !== undefined) head[2] = `since ${cellText(since)}`;
    terminal.out(`  ${head.filter(Boolean).join(', ')}`);
    terminal.out(`    ${printable(cellText(message ?? ''))}`);
  }
}

function cellText(value: Json): string {
  if (Array.isArray(value)) return value.map(cellText).join(', ');
  return typeof value === 'string' ? value : JSON.stringify(value);
}

const UNTOLD = 'cannot be told: ';

/** A part that the key may not see says so, and the others are shown. */
async function part(name: string, made: () => Promise<Omit<Part, 'name'>>): Promise<Part> {
  try {
    return { name, ...(await made()) };
  } catch (error) {
    if (!(error instanceof SvcError) || error.status === 0) throw error;
    const told = { name, text: `${UNTOLD}${error.message}`, needsSomebody: null, refusedWith: error.status };
    return error.code === 'wrong_workspace' ? { ...told, next: NAME_WORKSPACE } : told;
  }
}

async function gatewayPart(svc: Svc): Promise<Part> {
  const told = await readiness(svc.baseUrl).catch((error: unknown) => {
    if (!(error instanceof CommandFailure)) throw error;
    throw new CommandFailure(`${error.message}. On the machine of the gateway, svc doctor gateway.yaml says why.`);
  });
  const { ready, parts = [], notes = [] } = told;
  const more = notes.length === 0 ? '' : '; somebody should look at this';
  const text = ready ? `takes calls${more}` : 'takes no calls';
  return { name: 'gateway', text, needsSomebody: !ready || notes.length > 0, rows: [...parts, ...notes] };
}

/** What a gateway says of itself. @throws CommandFailure where there is none */
export async function readiness(baseUrl: string): Promise<Readiness> {
  try {
    const answer = await fetch(new URL('/readyz', baseUrl), { signal: AbortSignal.timeout(10_000) });
    const body = (await answer.json()) as Readiness;
    if (typeof body?.ready !== 'boolean') throw new Error(`it answers ${answer.status} with something else`);
    return body;
  } catch (error) {
    throw new CommandFailure(`${baseUrl} does not answer as a gateway does: ${fetchFailure(error)}`);
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
    rows: oldestFirst.map((effect) => ({
      ...effectRow(effect),
      upstream: effect.upstream,
      idempotencyKey: effect.idempotencyKey,
      sentAt: sentAtOf(effect),
      mayArriveUntil: 'quiesceUntil' in effect ? effect.quiesceUntil : null,
      why: 'evidence' in effect ? effect.evidence.message : null,
      hasProbe: effect.links.probe !== undefined,
    })),
    lines: oldestFirst.slice(0, SHOWN).flatMap(unknownLines),
    next: `Look in the upstream whether it happened, then, with an account key: svc effects resolve ${onlyId(oldestFirst, 'effectId', 'EFFECT')} --outcome happened --comment "how you know" (or not_happened, once it cannot arrive any more)`,
  };
}

/** Which call it is and where it went, since when and why its outcome is not known, and what settles it. */
function unknownLines(effect: Effect): readonly string[] {
  const { effectId, tool, target, upstream, idempotencyKey } = effect;
  const [why, until] = effect.state === 'unknown' ? [effect.evidence.message, effect.quiesceUntil] : ['', ''];
  const cannotArrive = Date.parse(until) <= Date.now();
  return [
    `${effectId} ${tool} on ${target}, upstream ${upstream}, key ${idempotencyKey}`,
    `  sent at ${sentAtOf(effect)}: ${why}; ${cannotArrive ? 'it cannot arrive any more' : `it may arrive until ${until}`}`,
    ...(effect.links.probe === undefined
      ? []
      : [`  its tool declares a probe, which asks again: svc effects probe ${effectId}`]),
  ];
}

async function runningPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { effects, nextCursor } = await svc.effects.list({ state: 'executing', limit: MOST });
  const long = effects.filter((effect) => Date.now() - Date.parse(sentAtOf(effect)) > LONG_MS);
  const running = effects.length === 0 ? 'nothing runs' : `${counted(effects, nextCursor)} under way`;
  return {
    text:
      long.length === 0 ? running : `${running}, ${long.length} of them for longer than ${LONG_MS / 60_000} minutes`,
    needsSomebody: long.length > 0,
    rows: effects.toReversed().map((effect) => ({ ...effectRow(effect), since: sentAtOf(effect) })),
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
    rows: byEnd.map((approval) => ({ ...approvalRow(approval), mayDecide: approversOf(approval) })),
    next: `svc approvals show ${onlyId(approvals, 'id', 'APPROVAL')}, then, with an account key of one who may decide, svc approvals approve or reject`,
  };
}

/** Calls that people let happen and that were not sent yet, as a rule for a pause. */
function approvedPart({ approvals, nextCursor }: Awaited<ReturnType<Svc['approvals']['list']>>): Omit<Part, 'name'> {
  const stopped = approvals.filter((one) => one.stopped !== undefined);
  if (stopped.length === 0) return { text: 'every approved call was sent', needsSomebody: false };
  const isPaused = stopped.some((one) => one.stopped?.code === 'paused');
  return {
    text: `${counted(stopped, nextCursor)} approved, and stopped before anything was sent`,
    needsSomebody: true,
    rows: stopped.map((approval) => {
      const { ends, ...row } = approvalRow(approval);
      return { ...row, since: approval.stopped?.at ?? '', until: ends, why: approval.stopped?.message ?? '' };
    }),
    next: `Each is tried again by itself until its end. ${isPaused ? 'svc resume PAUSE lifts the pause that it names' : 'svc approvals show APPROVAL says more'}`,
  };
}

/** Requests whose time was over before they were decided on, or sent. Those in whose place people are asked anew are none. */
async function expiredPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { approvals, nextCursor } = await svc.approvals.list({ status: 'expired', limit: MOST });
  const late = approvals.filter(
    ({ decidedAt, expiresAt, stopped }) =>
      Date.now() - Date.parse(decidedAt ?? expiresAt) < DAY_MS &&
      (decidedAt === null || decidedAt >= expiresAt || decidedAt === stopped?.at),
  );
  const undecided = late.filter(({ stopped }) => stopped === undefined);
  const approved = late.length - undecided.length;
  if (late.length === 0) return { text: 'no request ended without a decision in the last 24 h', needsSomebody: false };
  return {
    text: `${counted(undecided, nextCursor, 'request')} ended without a decision in the last 24 h${approved === 0 ? '' : `, ${approved} approved and not sent`}`,
    needsSomebody: false,
    rows: late.map((one) => ({ ...approvalRow(one), ends: one.decidedAt ?? one.expiresAt })),
    next: 'Nothing of them happened; whoever still wants it calls again: svc approvals list --status expired',
  };
}

function approvalRow({ id, summary, tool, target, requestedBy, expiresAt }: Approval) {
  return { approval: id, what: summary ?? `${tool} on ${target}`, by: requestedBy.agentId, ends: expiresAt };
}

/** Roles and users who may decide now, each once. */
function approversOf({ requirements }: Approval): readonly string[] {
  const groups = requirements.flatMap(({ approvers, escalates }) =>
    escalates === undefined || Date.parse(escalates.at) > Date.now() ? [approvers] : [approvers, escalates.to],
  );
  const named = groups.flatMap(({ roles, users }) => [
    ...roles.map((role) => `role ${role}`),
    ...users.map((user) => `user ${user}`),
  ]);
  return [...new Set(named)];
}

async function pausesPart(svc: Svc, granted: ReturnType<Svc['approvals']['list']>): Promise<Omit<Part, 'name'>> {
  const { pauses } = await svc.pauses.list();
  if (pauses.length === 0) return { text: 'nothing is paused', needsSomebody: false };
  const endless = pauses.filter(({ until }) => until === null).length;
  const { effects, nextCursor } = await refusedLately(svc, 'denied_paused');
  const { approvals } = await granted;
  const held = approvals.filter(({ stopped }) => stopped?.code === 'paused').length;
  return {
    text: `${pauses.length} in force${endless === 0 ? '' : `, ${endless} until somebody lifts it`}; ${counted(effects, nextCursor)} refused for a pause ${LATELY}${held === 0 ? '' : `, and ${held} approved that wait${held === 1 ? 's' : ''} for its end`}`,
    needsSomebody: endless > 0,
    rows: pauses.map(({ id, scope, by, createdAt, until, reason }) => ({
      pause: id,
      scope,
      by: by.user ?? by.keyId,
      since: createdAt,
      until,
      reason,
    })),
    next: `svc resume ${onlyId(pauses, 'id', 'PAUSE')}`,
  };
}

function budgetsPart(budgets: readonly BudgetRow[]): Omit<Part, 'name'> {
  const tight = budgets.filter(({ level }) => level !== 'ok');
  if (tight.length === 0) return { text: 'none is low', needsSomebody: false };
  return {
    text: `${tight.length} low or exhausted`,
    needsSomebody: tight.some(({ level }) => level === 'exhausted'),
    next: 'What is held is set aside for calls that run, wait for people or are unknown: spent when they happen, given back when they do not.',
    rows: tight.map(({ budget, bucket, unit, level, remaining, held, limit, resetsAt }) => ({
      budget,
      bucket: bucket ?? '',
      level,
      left: remaining ?? null,
      held: held ?? null,
      of: limit ?? null,
      unit,
      resets: resetsAt ?? null,
    })),
  };
}

function refusedLately(svc: Svc, decision: 'denied_budget' | 'denied_paused') {
  return svc.effects.list({ decision, since: new Date(Date.now() - LATELY_MS).toISOString(), limit: MOST });
}

/** A budget may have something left, and too little for the calls that come. */
async function refusedPart(svc: Svc): Promise<Omit<Part, 'name'>> {
  const { effects, nextCursor } = await refusedLately(svc, 'denied_budget');
  if (effects.length === 0) return { text: `no call for a budget ${LATELY}`, needsSomebody: false };
  return {
    text: `${counted(effects, nextCursor)} for a budget ${LATELY}`,
    needsSomebody: true,
    rows: effects.map((effect) => ({
      ...effectRow(effect),
      agent: effect.agentId,
      at: effect.createdAt,
      why: effect.reason.message,
    })),
    next: `svc effects show ${onlyId(effects, 'effectId', 'EFFECT')} says which rule and limit: raise it in the policies, or wait until the budget resets`,
  };
}

/** The id of the one that there is, so that its command can be copied; else what stands for it. */
function onlyId<Name extends string>(found: readonly Readonly<Record<Name, string>>[], id: Name, what: string): string {
  return found.length === 1 ? (found[0]?.[id] ?? what) : what;
}

function effectRow({ effectId, tool, target }: Effect) {
  return { effect: effectId, tool, target };
}

/** `3 calls`; `50 calls or more` where there is another page. */
function counted(found: readonly unknown[], nextCursor: string | null, what = 'call'): string {
  return `${found.length} ${what}${found.length === 1 ? '' : 's'}${nextCursor === null ? '' : ' or more'}`;
}

function agoText(at: string): string {
  const minutes = Math.max(0, Math.floor((Date.now() - Date.parse(at)) / 60_000));
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`;
}
