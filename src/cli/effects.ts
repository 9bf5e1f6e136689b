import {
  type Effect,
  type EffectBudgets,
  type EffectFilter,
  type EffectPage,
  type LedgerEvent,
  type ObservedRead,
  type ObservedReadPage,
  type Svc,
  SvcError,
} from '@svc-gateway/client';
import { type Command, Option } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount, toTime } from './command.ts';
import { addProbe, addResolve } from './effects-resolve.ts';
import { aboutEffects, filterOf, type FoundBy } from './ledger.ts';
import { WrongUsage } from './ports.ts';
import { inShort, json, paramsText, showPage, styled, table, type Terminal, wire } from './terminal.ts';

interface ListOptions extends GatewayAccess, FoundBy {
  readonly state?: NonNullable<EffectFilter['state']>;
  readonly decision?: NonNullable<EffectFilter['decision']>;
  readonly approver?: string;
  readonly observed?: true;
  readonly limit: number;
  readonly cursor?: string;
}

const STATES = ['pending_approval', 'executing', 'committed', 'failed', 'unknown', 'rejected', 'denied'] as const;

/** `svc effects list|show|resolve`. */
export function addEffects(program: Command, context: CliContext): void {
  const effects = program.command('effects').description('actions that the gateway ran or refused');

  addList(effects, context);
  addShow(effects, context);
  addResolve(effects, context);
  addProbe(effects, context);
  addDisclose(effects, context);
  addErase(effects, context);
}

function addList(effects: Command, { terminal }: CliContext): void {
  aboutEffects(talksToGateway(effects.command('list').description('effects, newest first')))
    .addOption(new Option('--state <state>', 'only these').choices(STATES))
    .option('--decision <decision>', 'only these, e.g. denied_budget')
    .option('--approver <id>', 'only what this user approved or rejected')
    .option('--until <time>', 'a time (RFC 3339) or a date in UTC, exclusive', toTime)
    .option('--observed', 'only those that policy would have stopped, were it in force')
    .option('--limit <n>', 'at most so many', toCount(200), 50)
    .option('--cursor <cursor>', 'go on where the last page ended')
    .action(async (options: ListOptions) => {
      const { state, decision, approver, limit, cursor } = options;
      const svc = await connect(options);
      const filter = {
        limit,
        ...(state && { state }),
        ...(decision && { decision }),
        ...(approver && { approver }),
        ...(cursor && { cursor }),
        ...filterOf(options),
      };
      const page: ObservedPage = options.observed ? await listObserved(svc, filter) : await svc.effects.list(filter);
      if (options.json) return terminal.out(json(wire(page)));
      if (page.reads !== undefined && page.reads.length > 0)
        terminal.out(`${table(READ_COLUMNS, page.reads.map(readRow))}\n`);
      const [columns, row] = options.observed ? [OBSERVED_COLUMNS, observedRow] : [EFFECT_COLUMNS, effectRow];
      showPage(terminal, page.nextCursor, 'effects', columns, page.effects.map(row));
    });
}

function addShow(effects: Command, { terminal }: CliContext): void {
  talksToGateway(effects.command('show').description('one effect: what happened, its ledger, its stages'))
    .argument('<id>', 'effect id')
    .action(async (id: string, options: GatewayAccess) => {
      if (id.startsWith('apr_')) throw new WrongUsage(`${id} is a request for approval: svc approvals show ${id}`);
      const svc = await connect(options);
      const [{ effect, ledger }, { stages }] = await Promise.all([svc.effects.get(id), svc.effects.run(id)]);
      const budgets = effect.holds.length === 0 ? null : await budgetsOf(svc, id);
      if (options.json)
        return terminal.out(json(wire({ effect, ledger, stages, ...(budgets === null ? {} : { budgets }) })));
      showEffect(terminal, effect, ledger);
      if (budgets !== null) {
        terminal.out(`\n${styled(terminal, 'bold', 'Budgets')} (spent + held)`);
        terminal.out(table(['budget', 'held', 'spent', 'before', 'after', 'now', 'of'], budgets.map(budgetLine)));
      }
      terminal.out(`\n${styled(terminal, 'bold', 'Stages')}`);
      terminal.out(
        table(
          ['stage', 'status', 'ms', 'detail'],
          stages.map((stage) => [stage.stage, stage.status, String(stage.durationMs ?? ''), stage.detail ?? '']),
        ),
      );
      terminal.out(`\n${styled(terminal, 'bold', 'Ledger')}`);
      terminal.out(
        table(
          ['seq', 'at', 'event', 'by'],
          ledger.map((event) => [String(event.seq), event.at, event.kind, `${event.actor.type} ${event.actor.id}`]),
        ),
      );
    });
}

/** `svc effects disclose`: a receipt with what opens it, or a part of it, to be handed to somebody else. */
function addDisclose(effects: Command, { terminal }: CliContext): void {
  talksToGateway(
    effects
      .command('disclose')
      .description(
        'print a receipt with what opens its commitments, or only some of them, for svc verify --disclosure',
      ),
  )
    .argument('<id>', 'effect id')
    .option(
      '--field <name...>',
      'only these: target, params, params.NAME, idem, request, response, comment, approval.0.comment, …',
    )
    .action(async (id: string, options: GatewayAccess & { readonly field?: readonly string[] }) => {
      terminal.out(json(await (await connect(options)).effects.disclosure(id, options.field)));
    });
}

function addErase(effects: Command, { terminal }: CliContext): void {
  talksToGateway(
    effects
      .command('erase')
      .description('forget params, salts and the kept answer of an effect that is over; its receipt still verifies'),
  )
    .argument('<id>', 'effect id')
    .action(async (id: string, options: GatewayAccess) => {
      await (await connect(options)).effects.erase(id);
      terminal.out(options.json ? json({ erased: id }) : `Erased: ${id}. Its receipt stays.`);
    });
}

/** A page of effects, with reads if they are asked for too. */
interface ObservedPage extends EffectPage {
  readonly reads?: readonly ObservedRead[];
}

/**
 * What policy would have stopped. Reads are not effects: they are added to the first page, if no state is asked for.
 */
async function listObserved(svc: Svc, filter: EffectFilter & { readonly limit: number }): Promise<ObservedPage> {
  const page = await listObservedEffects(svc, filter);
  if (filter.cursor !== undefined || filter.state !== undefined || filter.decision !== undefined) return page;
  return { ...page, reads: await listObservedReads(svc, filter) };
}

/** Reads page after page until there are enough effects that policy would have stopped. */
async function listObservedEffects(svc: Svc, filter: EffectFilter & { readonly limit: number }): Promise<EffectPage> {
  const effects: Effect[] = [];
  let cursor = filter.cursor;
  for (;;) {
    const limit = filter.limit - effects.length;
    const page: EffectPage = await svc.effects.list({ ...filter, params: true, limit, ...(cursor && { cursor }) });
    effects.push(...page.effects.filter(({ observed }) => observed !== undefined));
    if (page.nextCursor === null || effects.length >= filter.limit) return { effects, nextCursor: page.nextCursor };
    cursor = page.nextCursor;
  }
}

const MOST_READ_PAGES = 20;

/** The newest proxied reads that policy would have stopped. They are not effects, so they have their own list. */
async function listObservedReads(
  svc: Svc,
  { limit, tool, agentId, since, until }: EffectFilter & { readonly limit: number },
): Promise<readonly ObservedRead[]> {
  const reads: ObservedRead[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < MOST_READ_PAGES; pages += 1) {
    const page: ObservedReadPage = await svc.effects.observedReads({ limit, ...(cursor && { cursor }) });
    reads.push(
      ...page.reads.filter(
        (read) =>
          (tool === undefined || read.tool === tool) &&
          (agentId === undefined || read.agentId === agentId) &&
          (since === undefined || Date.parse(read.lastAt) >= Date.parse(since)) &&
          (until === undefined || Date.parse(read.firstAt) < Date.parse(until)),
      ),
    );
    if (page.nextCursor === null || reads.length >= limit) break;
    cursor = page.nextCursor;
  }
  return reads.slice(0, limit);
}

const READ_COLUMNS = ['reads', 'last at', 'agent', 'tool', 'policy', 'rule', 'for example'] as const;

function readRow({ count, lastAt, agentId, tool, upstream, observed, example }: ObservedRead): readonly string[] {
  const { would, rule } = observed;
  return [String(count), lastAt, agentId, tool ?? `${upstream}.(undeclared)`, would, rule ?? '-', example];
}

export const EFFECT_COLUMNS = ['effect', 'at', 'agent', 'tool', 'decision', 'reason'] as const;

/** The cells of {@link EFFECT_COLUMNS}. */
export function effectRow(effect: Effect): readonly string[] {
  return [effect.effectId, effect.createdAt, effect.agentId, effect.tool, effect.decision, reasonOf(effect)];
}

/** Calls that policy would have stopped, with enough about each for people to say whether it should be stopped. */
const OBSERVED_COLUMNS = [...EFFECT_COLUMNS, 'target', 'params'] as const;

function observedRow(effect: Effect): readonly string[] {
  return [...effectRow(effect), effect.target, inShort(paramsText(effect.params, effect.paramsOmitted))];
}

/** The reason code. In observe mode it also shows the decision that policy would have made. */
function reasonOf({ reason, observed }: Effect): string {
  return observed === undefined ? reason.code : `${reason.code}, policy: ${observed.would}`;
}

function showEffect(terminal: Terminal, effect: Effect, ledger: readonly LedgerEvent[]): void {
  const reason = effect.reason.rule === undefined ? effect.reason.code : `${effect.reason.code}, ${effect.reason.rule}`;
  const lines: readonly (readonly [string, string])[] = [
    ['effect', effect.effectId],
    ['decision', `${effect.decision} (${reason})`],
    ['why', effect.reason.message],
    ...observedLine(effect),
    ['state', effect.state],
    ['tool', effect.tool],
    ['target', effect.target],
    ['agent', effect.agentId],
    ['key', effect.idempotencyKey],
    ['attempt', String(effect.attempt)],
    ['created', effect.createdAt],
    ['policies', effect.policy.version],
    ['rules', effect.policy.matched.join(' ')],
    ...ledger.flatMap(voteLine),
    ['params', paramsText(effect.params, effect.paramsOmitted)],
  ];
  for (const [name, value] of lines) terminal.out(`${name.padEnd(9)} ${styled(terminal, 'bold', value)}`);
}

/** Who approved or rejected it, by which key, and what was changed. */
function voteLine({ kind, at, data }: LedgerEvent): readonly (readonly [string, string])[] {
  if (kind !== 'approval.granted' && kind !== 'approval.rejected') return [];
  const verdict = kind === 'approval.granted' ? 'approved' : 'rejected';
  const { user, key_id: key, changed } = data;
  const by = `by ${typeof user === 'string' ? user : ''}${typeof key === 'string' ? ` with ${key}` : ''}, ${at}`;
  return [[verdict, Array.isArray(changed) ? `${by}, changed: ${changed.join(', ')}` : by]];
}

/** What the call took of budgets; `null` where the key may not see it. */
async function budgetsOf(svc: Svc, id: string): Promise<EffectBudgets['budgets'] | null> {
  try {
    return (await svc.effects.budgets(id)).budgets;
  } catch (error) {
    if (error instanceof SvcError && error.status === 403) return null;
    throw error;
  }
}

function budgetLine(taken: EffectBudgets['budgets'][number]): readonly string[] {
  const { budget, unit, amount, spent, before, after, now } = taken;
  const unknown = taken.unknown === 'rolling' ? 'rolling window' : 'too much happened';
  const stood = (one: typeof before): string => (one === undefined ? unknown : `${one.spent} + ${one.held}`);
  return [
    budget,
    String(amount),
    String(spent),
    stood(before),
    stood(after),
    now === null ? 'over' : `${now.spent ?? ''} + ${now.held ?? ''}`,
    `${now?.limit ?? ''} ${unit}`.trim(),
  ];
}

function observedLine({ observed }: Effect): readonly (readonly [string, string])[] {
  if (observed === undefined) return [];
  const why = observed.rule ?? (observed.would === 'denied_policy' ? 'no rule allows it' : null);
  return [['policy', `only observes; in force: ${observed.would}${why === null ? '' : ` (${why})`}`]];
}
