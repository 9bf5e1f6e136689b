import { keyCreated, keyEnded } from '../../effects/steps/key-events.ts';
import type { KeyRecord } from '../../effects/model/key.ts';
import type { PauseRecord } from '../../effects/model/pause.ts';
import type { LedgerActor, LedgerDraft } from '../../effects/model/ledger.ts';
import type { Agent } from '../../effects/model/principal.ts';
import type { BudgetDefinition, EffectStore, PolicyActivation } from '../../effects/store.ts';
import { fieldsOf, textsOf } from './connection.ts';
import { texts } from './effect-record.ts';
import type { Frame } from './frame.ts';
import { rowOfDraft } from './ledger-events.ts';
import { fromPlainText, keyOf, metaKey, plainText } from './names.ts';
import { optional } from './admit.ts';

type Controls = Pick<
  EffectStore,
  | 'setPause'
  | 'liftPause'
  | 'pauses'
  | 'activatePolicy'
  | 'putKey'
  | 'putFirstKey'
  | 'key'
  | 'keys'
  | 'endKey'
  | 'touchKeys'
  | 'hasKeys'
  | 'secretMark'
  | 'bindSecret'
  | 'seeUsers'
  | 'userSince'
  | 'putWorkspace'
  | 'workspaces'
  | 'putAgent'
  | 'agents'
> & {
  /** Workspaces that were ever used, also without having been made. */
  entered(): Promise<readonly string[]>;
  /** Puts the installation's policy in force in a workspace that has another. @returns whether it had another */
  bringPolicy(workspace: string): Promise<boolean>;
  /** Moves events of other workspaces from the installation's outbox into their ledgers. */
  drainOutbox(): Promise<void>;
};

/** The part of a key that never changes. */
type KeyIdentity = Omit<KeyRecord, 'revokedAt' | 'expiresAt' | 'replacedBy' | 'lastUsedAt'>;

/** What administrators set: pauses, policy, keys, workspaces, agents. */
export function createControls(
  frame: Frame,
  now: () => number,
  told: { keysChanged(version: string, handle: string): void; pausesChanged(workspace: string, version: string): void },
): Controls {
  async function entered(): Promise<readonly string[]> {
    const [reply] = await frame.commands('', [['SMEMBERS', keyOf('', 'entered')]]);
    return textsOf(reply).map(fromPlainText);
  }

  async function drainOutbox(): Promise<void> {
    const [reply] = await frame.commands('', [['LRANGE', keyOf('', 'ob'), 0, 99]]);
    for (const waiting of textsOf(reply)) {
      const [workspace = '', event = ''] = texts(waiting);
      await frame.step('append', fromPlainText(workspace), [`[${event}]`]);
      await frame.step('directory', '', ['sent', '', '', waiting]);
    }
  }

  /** Runs a step of the installation, and what it left in the outbox. */
  async function administer(name: 'key' | 'directory', args: readonly string[]): Promise<string> {
    const { tag, values } = await frame.step(name, '', args);
    if (tag === 'put' || tag === 'ended') told.keysChanged(values[0] ?? '', values[1] ?? '');
    if (tag === 'new' || tag === 'put' || tag === 'ended') await drainOutbox();
    return tag;
  }

  async function keyById(id: string): Promise<KeyRecord | null> {
    const [reply] = await frame.commands('', [['HGETALL', keyOf('', `key:${id}`)]]);
    return keyOfHash(fieldsOf(textsOf(reply)));
  }

  return {
    entered,
    drainOutbox,
    async setPause({ id, workspace, scope, reason, until, by, actor }) {
      const fixed: Omit<PauseRecord, 'createdAt'> = { id, workspace, scope, reason, by, until };
      const reply = await frame.step('pause', workspace, [
        'set',
        JSON.stringify({
          id: plainText(id),
          until: until === null ? '' : String(until),
          kind: by.keyKind,
          atype: actor.type,
          actor: plainText(actor.id),
        }),
        JSON.stringify(fixed),
        JSON.stringify({ pause_id: id, scope, reason }),
      ]);
      told.pausesChanged(workspace, reply.values[0] ?? '');
      return { ...fixed, createdAt: Number(reply.values[1]) };
    },
    async liftPause(workspace, id, by, actor) {
      const { tag, values } = await frame.step('pause', workspace, [
        'lift',
        JSON.stringify({ id: plainText(id), kind: by, atype: actor.type, actor: plainText(actor.id) }),
        '',
        '',
      ]);
      if (tag === 'absent') return { kind: 'absent' };
      if (tag === 'lifted') told.pausesChanged(workspace, values[0] ?? '');
      const pause = pauseOfRow(values[1] ?? '');
      return { kind: tag === 'lifted' ? 'lifted' : 'administrative_only', pause };
    },
    async pauses(workspace) {
      const [version, rows] = await frame.commands(workspace, [
        ['HGET', metaKey(workspace), 'pauses'],
        ['HVALS', keyOf(workspace, 'pz')],
      ]);
      const at = now();
      const pauses = textsOf(rows)
        .map(pauseOfRow)
        .filter(({ until }) => until === null || until > at)
        .sort((a, b) => (a.id < b.id ? -1 : 1));
      return { version: Number(version ?? 0), pauses };
    },
    async activatePolicy(version, budgets): Promise<PolicyActivation> {
      const redefined = await redefinedBudgets(frame, budgets);
      const workspaces = await entered();
      const refused = await refusedBudgets(frame, redefined, workspaces);
      if (refused.length > 0) return { kind: 'budget_redefined', budgets: refused };
      for (const { definition } of redefined) {
        for (const workspace of workspaces) await frame.step('reset', workspace, [plainText(definition.budget)]);
      }
      const definitions = budgets.flatMap(({ budget, unit, window }) => [budget, unit, window].map(plainText));
      await frame.step('policy', '', [plainText(version), definitions.length === 0 ? '' : JSON.stringify(definitions)]);
      for (const workspace of workspaces) await frame.step('policy', workspace, [plainText(version), '']);
      return { kind: 'active', version };
    },
    async bringPolicy(workspace) {
      const [version] = await frame.commands('', [['HGET', metaKey(''), 'policy']]);
      const [there] = await frame.commands(workspace, [['HGET', metaKey(workspace), 'policy']]);
      if (typeof version !== 'string' || version === there) return false;
      await frame.step('policy', workspace, [version, '']);
      return true;
    },
    async putKey(key, actor) {
      await administer('key', keyArguments('put', key, actor));
    },
    putFirstKey: async (key, actor) => (await administer('key', keyArguments('first', key, actor))) === 'put',
    async key(handle) {
      const [id] = await frame.commands('', [['HGET', keyOf('', 'kh'), plainText(handle)]]);
      return typeof id === 'string' ? keyById(id) : null;
    },
    async keys(user) {
      const [reply] = await frame.commands('', [['ZRANGE', keyOf('', 'kn'), 0, -1]]);
      const hashes = await frame.commands(
        '',
        textsOf(reply).map((id) => ['HGETALL', keyOf('', `key:${id}`)] as const),
      );
      return hashes
        .map((hash) => keyOfHash(fieldsOf(textsOf(hash))))
        .filter((key) => key !== null)
        .filter((key) => user === null || key.user === user);
    },
    async endKey(id, end, actor) {
      const tag = await administer('key', [
        'end',
        JSON.stringify({
          id: plainText(id),
          how: end.kind,
          by: end.kind === 'replaced' ? plainText(end.by) : '',
          overlap: end.kind === 'replaced' ? String(end.overlapMs) : '0',
        }),
        '',
        JSON.stringify(rowOfDraft(keyEnded(id, end, actor))),
      ]);
      return tag === 'absent' ? null : keyById(plainText(id));
    },
    async touchKeys(ids, at) {
      if (ids.length === 0) return;
      await frame.step('key', '', [
        'touch',
        JSON.stringify({ ids: JSON.stringify(ids.map(plainText)), at: String(at) }),
        '',
        '',
      ]);
    },
    async secretMark() {
      const [mark] = await frame.commands('', [['HGET', metaKey(''), 'secret']]);
      return typeof mark === 'string' ? mark : null;
    },
    async hasKeys() {
      const [count] = await frame.commands('', [['ZCARD', keyOf('', 'kn')]]);
      return Number(count) > 0;
    },
    async bindSecret({ current }) {
      const [mark] = current;
      const tag = await administer('directory', ['secret', mark, `|${current.join('|')}|`, '']);
      return tag === 'other' ? { kind: 'other' } : { kind: 'bound', sealed: 0 };
    },
    async seeUsers(ids) {
      await frame.step('directory', '', ['users', JSON.stringify(ids.map(plainText)), '', '']);
    },
    async userSince(id) {
      const [since] = await frame.commands('', [['HGET', keyOf('', 'us'), plainText(id)]]);
      return typeof since === 'string' ? Number(since) : null;
    },
    async putWorkspace(id, actor) {
      const event = outgoing(id, { kind: 'workspace.created', effectId: null, actor, data: { workspace: id } });
      return (await administer('directory', ['workspace', plainText(id), '', event])) === 'new';
    },
    async workspaces() {
      const [reply] = await frame.commands('', [['ZRANGE', keyOf('', 'wn'), 0, -1]]);
      return textsOf(reply)
        .map(fromPlainText)
        .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    },
    async putAgent(agent, actor) {
      const event = outgoing(agent.workspace, {
        kind: 'agent.registered',
        effectId: null,
        actor,
        data: { agent_id: agent.id, disabled: agent.disabled, team: agent.team, owner: agent.owner },
      });
      const name = JSON.stringify([agent.workspace, agent.id]);
      await administer('directory', ['agent', name, JSON.stringify(agent), event]);
    },
    async agents() {
      const [reply] = await frame.commands('', [['HVALS', keyOf('', 'ag')]]);
      return textsOf(reply)
        .map((text) => JSON.parse(text) as Agent)
        .sort((a, b) => order(a.workspace, b.workspace) || order(a.id, b.id));
    },
  };
}

function order(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function textOf(value: number | null): string {
  return value === null ? '' : String(value);
}

function keyArguments(op: 'put' | 'first', key: KeyRecord, actor: LedgerActor): readonly string[] {
  const { revokedAt, expiresAt, replacedBy, lastUsedAt, ...identity } = key;
  return [
    op,
    JSON.stringify({
      id: plainText(key.id),
      handle: plainText(key.handle),
      user: optional(key.user),
      workspace: plainText(key.workspace ?? ''),
      revoked: textOf(revokedAt),
      expires: textOf(expiresAt),
      replaced: optional(replacedBy),
      used: textOf(lastUsedAt),
    }),
    JSON.stringify(identity satisfies KeyIdentity),
    JSON.stringify(rowOfDraft(keyCreated(key, actor))),
  ];
}

/** An event of a workspace as it waits in the outbox. */
function outgoing(workspace: string, draft: LedgerDraft & { readonly actor: LedgerActor }): string {
  return JSON.stringify([plainText(workspace), JSON.stringify(rowOfDraft(draft))]);
}

function pauseOfRow(row: string): PauseRecord {
  const [created = '', , , doc = ''] = texts(row);
  return { ...(JSON.parse(doc) as Omit<PauseRecord, 'createdAt'>), createdAt: Number(created) };
}

function keyOfHash(fields: ReadonlyMap<string, string>): KeyRecord | null {
  const doc = fields.get('doc');
  if (doc === undefined) return null;
  const time = (name: string): number | null => {
    const text = fields.get(name) ?? '';
    return text === '' ? null : Number(text);
  };
  const replaced = fields.get('replaced') ?? '';
  return {
    ...(JSON.parse(doc) as KeyIdentity),
    revokedAt: time('revoked'),
    expiresAt: time('expires'),
    lastUsedAt: time('used'),
    replacedBy: replaced === '' ? null : fromPlainText(replaced.slice(1)),
  };
}

interface Redefined {
  readonly definition: BudgetDefinition;
  readonly was: readonly string[];
}

async function redefinedBudgets(frame: Frame, budgets: readonly BudgetDefinition[]): Promise<readonly Redefined[]> {
  const rows = await frame.commands(
    '',
    budgets.map(({ budget }) => ['HGET', keyOf('', 'bd'), plainText(budget)] as const),
  );
  return budgets.flatMap((definition, index) => {
    const row = rows[index];
    if (typeof row !== 'string') return [];
    const was = texts(row).map(fromPlainText);
    return was[0] === definition.unit && was[1] === definition.window ? [] : [{ definition, was }];
  });
}

/** All budgets whose change has to be refused: they are in use, and not to be reset. */
async function refusedBudgets(
  frame: Frame,
  redefined: readonly Redefined[],
  workspaces: readonly string[],
): Promise<readonly ReturnType<typeof describe>[]> {
  const refused: ReturnType<typeof describe>[] = [];
  for (const { definition, was } of redefined) {
    if (definition.reset) continue;
    for (const workspace of workspaces) {
      const rows = await frame.read('budgets', workspace, [plainText(definition.budget)]);
      if (rows === null || rows.values.length === 0) continue;
      refused.push(describe(definition, was));
      break;
    }
  }
  return refused;
}

function describe({ budget, unit, window }: BudgetDefinition, [wasUnit = '', wasWindow = '']: readonly string[]) {
  return { budget, was: `${wasUnit} per ${wasWindow}`, is: `${unit} per ${window}` };
}
