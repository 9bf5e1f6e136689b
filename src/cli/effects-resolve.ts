import type { Effect, EffectFilter, EffectPage, EffectState, Json, Svc } from '@svc-gateway/client';
import { SvcError } from '@svc-gateway/client';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { didYouMean } from '../diagnostics/nearest.ts';
import { readJson } from '../json/text.ts';
import { type CliContext, connect, type GatewayAccess, readText, talksToGateway } from './command.ts';
import { CommandFailure, WrongUsage } from './ports.ts';
import { json, table, type Terminal, wire } from './terminal.ts';

interface ResolveOptions extends GatewayAccess {
  readonly outcome: 'happened' | 'not_happened';
  readonly comment?: string;
  readonly evidence?: Json;
  readonly force?: true;
  readonly tool?: string;
  readonly before?: string;
  readonly from?: string;
  readonly dryRun?: true;
  readonly yes?: true;
}

interface Chosen {
  readonly effectId: string;
  readonly state: EffectState;
  readonly tool: string;
  readonly target: string;
  /** When its latest attempt began: of an unknown outcome, the one that nobody knows the end of. */
  readonly sentAt: string;
  /** Before it nobody may say that it did not happen. */
  readonly quiesceUntil: string | null;
}

interface Refusal {
  readonly effectId: string;
  readonly code: string;
  readonly message: string;
}

/** `svc effects resolve`: one effect by its id, or many at once. */
export function addResolve(effects: Command, { terminal, exit }: CliContext): void {
  talksToGateway(effects.command('resolve').description('settle unknown outcomes, one or many; needs an account key'))
    .argument('[id]', 'effect id')
    .addOption(
      new Option('--outcome <outcome>', 'what you found out')
        .choices(['happened', 'not_happened'])
        .makeOptionMandatory(),
    )
    .option('--tool <name>', 'all unknown effects of this tool')
    .option('--before <time>', 'all unknown effects last sent before this time, RFC 3339', toTime)
    .option('--from <file>', 'the effects of a file, one id a line')
    .option('--dry-run', 'print what would be settled, and settle nothing')
    .option('--yes', 'settle what was chosen by --tool, --before or --from without asking')
    .option('--comment <text>', 'how you found out; kept with the effect')
    .option('--evidence <json>', 'what you found, as JSON', toJson)
    .option('--force', 'say not_happened before the quiet time is over; needs a second user')
    .action(async (id: string | undefined, options: ResolveOptions) => {
      const many = [options.tool, options.before, options.from].some((option) => option !== undefined);
      if (
        (id === undefined) === !many ||
        (options.from !== undefined && (options.tool ?? options.before) !== undefined)
      )
        throw new WrongUsage('Say which: an effect id, or --from FILE, or --tool NAME, --before TIME or both of them.');
      const svc = await connect(options);
      if (id !== undefined && options.dryRun === undefined) {
        const result = await settle(svc, id, options);
        return terminal.out(
          options.json ? json(wire(result)) : `${result.effectId} is ${result.status}: ${result.reason.message}`,
        );
      }
      const { chosen, refused } = await choose(svc, id, options);
      if (options.dryRun) exit(refused.length === 0 ? 0 : 1);
      if (options.dryRun) return tell(terminal, chosen, refused, options);
      if (options.yes === undefined && chosen.length > 0) await confirm(terminal, chosen, options.outcome);
      const settled: string[] = [];
      for (const { effectId } of chosen) {
        try {
          await settle(svc, effectId, options);
          settled.push(effectId);
        } catch (error) {
          refused.push(refusalOf(effectId, error));
        }
      }
      if (options.json) terminal.out(json(wire({ settled, refused })));
      else {
        for (const refusal of refused) terminal.err(inWords(refusal));
        terminal.out(`Settled as ${options.outcome}: ${settled.length}. Refused: ${refused.length}.`);
      }
      exit(refused.length === 0 ? 0 : 1);
    });
}

/** Nobody settles what they have not seen. @throws CommandFailure where nobody is there to ask, or the answer is no */
async function confirm(terminal: Terminal, chosen: readonly Chosen[], outcome: string): Promise<void> {
  const what = `${chosen.length} outcome${chosen.length === 1 ? '' : 's'} as ${outcome}`;
  if (!terminal.interactive)
    throw new WrongUsage(`This would settle ${what}: look with --dry-run, then say --yes. Nothing was changed.`);
  terminal.err(table(COLUMNS, chosen.map(rowOf)));
  if ((await terminal.ask(`Settle ${what}? Type yes:`)) !== 'yes') throw new CommandFailure('Nothing was changed.');
}

/** What would be settled, by what is known now. */
function tell(
  terminal: CliContext['terminal'],
  chosen: readonly Chosen[],
  refused: readonly Refusal[],
  { outcome, force, json: asJson }: ResolveOptions,
): void {
  const isEarly = ({ quiesceUntil }: Chosen): boolean =>
    outcome === 'not_happened' && force === undefined && quiesceUntil !== null && Date.parse(quiesceUntil) > Date.now();
  const unknown = chosen.filter(({ state }) => state === 'unknown');
  const [tooEarly, wouldSettle] = [unknown.filter(isEarly), unknown.filter((one) => !isEarly(one))];
  const notUnknown = chosen.filter(({ state }) => state !== 'unknown');
  if (asJson) return terminal.out(json(wire({ wouldSettle, tooEarly, notUnknown, refused })));
  if (chosen.length > 0) terminal.out(table(COLUMNS, [...wouldSettle, ...tooEarly, ...notUnknown].map(rowOf)));
  for (const refusal of refused) terminal.err(inWords(refusal));
  const last = tooEarly
    .map(({ quiesceUntil }) => quiesceUntil ?? '')
    .toSorted()
    .at(-1);
  const counts = [
    `Would settle as ${outcome}: ${wouldSettle.length}.`,
    ...(last === undefined
      ? []
      : [`Too early to say that it did not happen: ${tooEarly.length}, the last until ${last}.`]),
    ...(notUnknown.length === 0 ? [] : [`Not unknown: ${notUnknown.length}.`]),
    ...(refused.length === 0 ? [] : [`Refused: ${refused.length}.`]),
  ];
  terminal.out(`${counts.join(' ')} Nothing was changed.`);
}

/** What is refused for one may be right for the next. @throws what no gateway answered, which is an end */
function refusalOf(effectId: string, error: unknown): Refusal {
  if (!(error instanceof SvcError) || error.status === 0) throw error;
  return { effectId, code: error.code, message: error.message };
}

function inWords({ effectId, code, message }: Refusal): string {
  return `${effectId}: ${message} [${code}]`;
}

/** `svc effects probe`. */
export function addProbe(effects: Command, { terminal }: CliContext): void {
  talksToGateway(
    effects
      .command('probe')
      .description('find out from the upstream what became of an unknown outcome, by the probe of its tool'),
  )
    .argument('<id>', 'effect id')
    .action(async (id: string, options: GatewayAccess) => {
      const { probe, effect } = await (await connect(options)).effects.probe(id);
      if (options.json) return terminal.out(json(wire({ probe, effect })));
      const again =
        probe.retryAfterMs === undefined ? '' : ` Probe again in ${Math.ceil(probe.retryAfterMs / 1000)} s.`;
      terminal.out(`${id} is ${effect.decision}: ${probe.message}${again}`);
    });
}

const COLUMNS = ['effect', 'sent', 'state', 'tool', 'target'] as const;

function rowOf({ effectId, sentAt, state, tool, target }: Chosen): readonly string[] {
  return [effectId, sentAt, state, tool, target];
}

async function choose(
  svc: Svc,
  id: string | undefined,
  { tool, before, from }: ResolveOptions,
): Promise<{ readonly chosen: readonly Chosen[]; readonly refused: Refusal[] }> {
  if (id === undefined && from === undefined) return { chosen: await unknownOf(svc, tool, before), refused: [] };
  const ids = id === undefined ? idsIn(await readText(from ?? '')) : [id];
  if (ids.length === 0) throw new CommandFailure(`${from ?? ''} names no effect: it has one id a line.`);
  const chosen: Chosen[] = [];
  const refused: Refusal[] = [];
  for (const each of ids) {
    try {
      chosen.push(brief((await svc.effects.get(each)).effect));
    } catch (error) {
      refused.push(refusalOf(each, error));
    }
  }
  return { chosen, refused };
}

async function unknownOf(svc: Svc, tool: string | undefined, before: string | undefined): Promise<readonly Chosen[]> {
  const unknown = await allEffects(svc, {
    state: 'unknown',
    ...(tool !== undefined && { tool }),
    ...(before !== undefined && { until: before }),
  });
  if (unknown.length === 0 && tool !== undefined) await expectTool(svc, tool);
  // What was made before may have been sent again since.
  return unknown.map(brief).filter(({ sentAt }) => before === undefined || Date.parse(sentAt) < Date.parse(before));
}

/** Of a tool that is declared nothing may be unknown. @throws WrongUsage for another one */
async function expectTool(svc: Svc, tool: string): Promise<void> {
  const names = (await svc.tools.list()).tools.map(({ name }) => name);
  if (names.includes(tool)) return;
  const hint = didYouMean(tool, names) ?? 'svc effects list --state unknown has what there is.';
  throw new WrongUsage(`No tool is called '${tool}', and nothing of it is unknown: ${hint}`);
}

/** The most effects of one page. */
export const PAGE = 200;

/** All effects that fit a filter, read before anything is done with the first: each page could be another one afterwards. */
export async function allEffects(svc: Svc, filter: EffectFilter): Promise<readonly Effect[]> {
  const effects: Effect[] = [];
  let cursor: string | null = null;
  do {
    const page: EffectPage = await svc.effects.list({ ...filter, limit: PAGE, ...(cursor && { cursor }) });
    effects.push(...page.effects);
    cursor = page.nextCursor;
  } while (cursor !== null);
  return effects;
}

function brief(effect: EffectPage['effects'][number]): Chosen {
  const { effectId, state, tool, target } = effect;
  const quiesceUntil = effect.state === 'unknown' ? effect.quiesceUntil : null;
  return { effectId, state, tool, target, sentAt: sentAtOf(effect), quiesceUntil };
}

/** When an effect was sent last, as far as that is known; else when it was made. */
export function sentAtOf(effect: EffectPage['effects'][number]): string {
  return (effect.state === 'unknown' ? effect.evidence.startedAt : null) ?? effect.createdAt;
}

function idsIn(text: string): readonly string[] {
  const lines = text.split('\n').map((line) => line.trim());
  return [...new Set(lines.filter((line) => line !== '' && !line.startsWith('#')))];
}

function settle(
  svc: Svc,
  id: string,
  { outcome, comment, evidence, force }: ResolveOptions,
): ReturnType<Svc['resolve']> {
  return svc.resolve(id, {
    outcome,
    ...(comment !== undefined && { comment }),
    ...(evidence !== undefined && { evidence }),
    ...(force && { force }),
  });
}

function toTime(text: string): string {
  if (/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) && !Number.isNaN(Date.parse(text))) return text;
  throw new InvalidArgumentError('Not a time such as 2026-11-27T08:00:00Z.');
}

function toJson(text: string): Json {
  try {
    return readJson(text);
  } catch {
    throw new InvalidArgumentError('Not JSON.');
  }
}
