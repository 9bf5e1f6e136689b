import type { EffectPage, EffectState, Json, Svc } from '@svc-gateway/client';
import { SvcError } from '@svc-gateway/client';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { readJson } from '../json/read.ts';
import { type CliContext, connect, type GatewayAccess, readText, talksToGateway } from './command.ts';
import { CommandFailure } from './ports.ts';
import { json, table, wire } from './terminal.ts';

interface ResolveOptions extends GatewayAccess {
  readonly outcome: 'happened' | 'not_happened';
  readonly comment?: string;
  readonly evidence?: Json;
  readonly force?: true;
  readonly tool?: string;
  readonly before?: string;
  readonly from?: string;
  readonly dryRun?: true;
}

/** An effect that was chosen. */
interface Chosen {
  readonly effectId: string;
  readonly state: EffectState;
  readonly tool: string;
  readonly target: string;
  readonly createdAt: string;
}

const PAGE = 200;

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
    .option('--before <time>', 'all unknown effects made before this time, RFC 3339')
    .option('--from <file>', 'the effects of a file, one id a line')
    .option('--dry-run', 'print what would be settled, and settle nothing')
    .option('--comment <text>', 'how you found out; kept with the effect')
    .option('--evidence <json>', 'what you found, as JSON', toJson)
    .option('--force', 'say not_happened before the quiet time is over; needs a second user')
    .action(async (id: string | undefined, options: ResolveOptions) => {
      const many = [options.tool, options.before, options.from].some((option) => option !== undefined);
      if (
        (id === undefined) === !many ||
        (options.from !== undefined && (options.tool ?? options.before) !== undefined)
      )
        throw new CommandFailure(
          'Say which: an effect id, or --from FILE, or --tool NAME, --before TIME or both of them.',
        );
      const svc = await connect(options);
      if (id !== undefined && options.dryRun === undefined) {
        const result = await settle(svc, id, options);
        return terminal.out(
          options.json ? json(wire(result)) : `${result.effectId} is ${result.status}: ${result.reason.message}`,
        );
      }
      const chosen = await choose(svc, id, options);
      if (options.dryRun) {
        if (options.json) return terminal.out(json(wire({ wouldSettle: chosen })));
        if (chosen.length > 0) terminal.out(table(COLUMNS, chosen.map(rowOf)));
        return terminal.out(`Would settle as ${options.outcome}: ${chosen.length}. Nothing was changed.`);
      }
      const settled: string[] = [];
      const refused: { readonly effectId: string; readonly code: string; readonly message: string }[] = [];
      for (const { effectId } of chosen) {
        try {
          await settle(svc, effectId, options);
          settled.push(effectId);
        } catch (error) {
          // What is refused for one may be right for the next. What no gateway answered is an end.
          if (!(error instanceof SvcError) || error.status === 0) throw error;
          refused.push({ effectId, code: error.code, message: error.message });
        }
      }
      if (options.json) terminal.out(json(wire({ settled, refused })));
      else {
        for (const { effectId, code, message } of refused) terminal.err(`${effectId}: ${message} [${code}]`);
        terminal.out(`Settled as ${options.outcome}: ${settled.length}. Refused: ${refused.length}.`);
      }
      exit(refused.length === 0 ? 0 : 1);
    });
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

const COLUMNS = ['effect', 'made', 'state', 'tool', 'target'] as const;

function rowOf({ effectId, createdAt, state, tool, target }: Chosen): readonly string[] {
  return [effectId, createdAt, state, tool, target];
}

async function choose(svc: Svc, id: string | undefined, options: ResolveOptions): Promise<readonly Chosen[]> {
  const { tool, before, from } = options;
  if (id === undefined && from === undefined) return unknownOf(svc, tool, before);
  const ids = id === undefined ? idsIn(await readText(from ?? '')) : [id];
  const chosen: Chosen[] = [];
  for (const each of ids) chosen.push(brief((await svc.effects.get(each)).effect));
  return chosen;
}

/** All unknown effects, read before the first is settled: each page would be another one afterwards. */
async function unknownOf(svc: Svc, tool: string | undefined, before: string | undefined): Promise<readonly Chosen[]> {
  const chosen: Chosen[] = [];
  let cursor: string | null = null;
  do {
    const page: EffectPage = await svc.effects.list({
      state: 'unknown',
      limit: PAGE,
      ...(tool !== undefined && { tool }),
      ...(before !== undefined && { until: before }),
      ...(cursor !== null && { cursor }),
    });
    chosen.push(...page.effects.map(brief));
    cursor = page.nextCursor;
  } while (cursor !== null);
  return chosen;
}

function brief({ effectId, state, tool, target, createdAt }: Chosen): Chosen {
  return { effectId, state, tool, target, createdAt };
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

function toJson(text: string): Json {
  try {
    return readJson(text);
  } catch {
    throw new InvalidArgumentError('Not JSON.');
  }
}
