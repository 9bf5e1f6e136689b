import { randomUUID } from 'node:crypto';
import { StoreUnavailable } from '../../effects/store.ts';
import type { JournaledStep, StepJournal } from '../journal/step-journal.ts';
import { fromPlainText, keyOf, metaKey, plainText } from './names.ts';
import { textsOf } from './connection.ts';
import type { ScriptName } from './scripts.ts';
import type { Topology } from './topology.ts';

/** Lost steps that are handed in with one command. */
const HANDED_IN = 50;

/** What the gateway knows of a workspace in the store. */
interface Attached {
  readonly epoch: string;
}

export interface FleetSettings {
  readonly topology: Topology;
  readonly journal: StepJournal;
  readonly gatewayId: string;
  readonly clock: () => string;
  /** The store's time as last seen plus what has gone by since, ms; `null` where none was seen. */
  readonly estimate: () => number | null;
  readonly observe: (now: number) => void;
  /** Acknowledged steps that are missing may span this much, ms; more is a store that was set back. */
  readonly maxReplayMs: number;
}

/**
 * The gateways of one installation as the store sees them. Each registers in a workspace before its first step there;
 * when the replication history changes (a fail-over, a restart), acknowledged steps may be lost, and writes wait until
 * every registered gateway has handed in what its journal has beyond the store's head.
 */
export interface Fleet {
  readonly installId: () => string;
  /** The epoch this gateway is registered in; registers it where it is not. @throws StoreUnavailable */
  attach(workspace: string): Promise<string>;
  /** What was known of a workspace is no longer so. */
  detach(workspace: string): void;
  attached(): ReadonlyMap<string, Attached>;
  /** After another history or epoch: hands in, and waits its turn. @throws StoreUnavailable while others are awaited */
  recover(workspace: string): Promise<void>;
  /** Workspaces whose writes wait, with the gateways that are awaited. */
  waiting(): ReadonlyMap<string, readonly string[]>;
  /** Why this store is not the one that was left, or `null`. */
  rolledBack(): string | null;
  /** Why this gateway may not use its name, or `null`. */
  nameTaken(): string | null;
  /** An operator says that a gateway's journal is lost: writes no longer wait for it. */
  recoverLost(gateway: string): Promise<void>;
  /** An operator accepts that the store was set back: it goes on in a new epoch with what the journal has. */
  acceptLoss(): Promise<void>;
  /** Leaves the installation in order: no epoch to come waits for this gateway. */
  leave(): Promise<void>;
}

export function createFleet(settings: FleetSettings): Fleet {
  const { topology, journal, gatewayId, clock } = settings;
  const attached = new Map<string, Attached>();
  const waiting = new Map<string, readonly string[]>();
  const attaching = new Map<string, Promise<string>>();
  const recovering = new Map<string, Promise<void>>();
  let rolledBack: string | null = null;
  let nameTaken: string | null = null;
  let accepting = false;
  let installId = journal.memory?.installId ?? '';

  function run(
    name: ScriptName,
    workspace: string,
    epoch: string,
    args: readonly string[],
  ): Promise<readonly string[]> {
    return topology
      .primaryOf(workspace)
      .connection()
      .run(name, workspace, [epoch, gatewayId, clock(), ...args]);
  }

  function setBack(workspace: string, message: string): StoreUnavailable {
    rolledBack = `The store is not the one that was left: ${message}. Restore it, or accept the loss (svc store accept-loss).`;
    attached.delete(workspace);
    return new StoreUnavailable(rolledBack);
  }

  /** The installation: minted where this gateway has never seen one, else it must be the one it remembers. */
  async function attachInstallation(): Promise<string> {
    const mayMint = journal.memory === null || accepting;
    if (journal.memory === null) await checkName();
    const candidate = journal.memory?.installId ?? randomUUID();
    let reply = await run('join', '', '', [candidate, '', mayMint ? '1' : '']);
    if (reply[0] === 'foreign' && journal.memory === null) {
      const there = await topology.primaryOf('').connection().command('HGET', metaKey(''), 'install');
      reply = await run('join', '', '', [String(there), '', '']);
      installId = String(there);
    } else installId = candidate;
    const isKnown = reply[0] !== 'absent' && reply[0] !== 'foreign';
    if (isKnown && journal.memory === null) await journal.remember({ installId, gatewayId });
    return joined('', reply);
  }

  /** A name that is registered belongs to a journal with acknowledged steps; an empty one must not speak for it. */
  async function checkName(): Promise<void> {
    const registered = await topology.primaryOf('').connection().command('HEXISTS', keyOf('', 'gw'), gatewayId);
    nameTaken = null;
    if (Number(registered) === 0) return;
    nameTaken = `gateway ${gatewayId} is registered in the store, and its journal is not in the folder given: give it its folder back, or start under another name and declare ${gatewayId} lost`;
    throw new StoreUnavailable(nameTaken);
  }

  async function attachWorkspace(workspace: string): Promise<string> {
    await attach('');
    const home = topology.primaryOf('').connection();
    const [known, policy, install] = await home.pipeline([
      ['SISMEMBER', keyOf('', 'entered'), plainText(workspace)],
      ['HGET', metaKey(''), 'policy'],
      ['HGET', metaKey(''), 'install'],
    ]);
    if (install !== installId)
      throw setBack('', install === null ? 'it is empty' : 'it belongs to another installation');
    const isKnown = Number(known) === 1;
    const mayMint = accepting || (!isKnown && !journal.heads().has(workspace));
    const reply = await run('join', workspace, '', [
      installId,
      typeof policy === 'string' ? policy : '',
      mayMint ? '1' : '',
    ]);
    const epoch = await joined(workspace, reply);
    if (!isKnown) {
      const entered = await run('directory', '', await attach(''), ['enter', plainText(workspace), '', '']);
      if (entered[0] !== 'ok') throw new StoreUnavailable('Redis: the installation is changing its epoch');
    }
    return epoch;
  }

  async function joined(workspace: string, reply: readonly string[]): Promise<string> {
    const [tag = '', epoch = '', steps = '0', now = ''] = reply;
    switch (tag) {
      case 'joined': {
        const head = journal.heads().get(workspace);
        if (head !== undefined && head.step > Number(steps) && !accepting) {
          throw setBack(
            workspace,
            `it ends at step ${steps} of ${nameOf(workspace)}, and step ${head.step} was acknowledged`,
          );
        }
        settings.observe(Number(now));
        // An epoch to come waits for this gateway only if its registration is as durable as what follows.
        await topology.primaryOf(workspace).barrier.wait(workspace, epoch);
        attached.set(workspace, { epoch });
        waiting.delete(workspace);
        return epoch;
      }
      case 'absent':
        throw setBack(workspace, `${nameOf(workspace)} is not in it`);
      case 'foreign':
        throw setBack(workspace, 'it belongs to another installation');
      default:
        await recover(workspace);
        return joined(workspace, await run('join', workspace, '', [installId, '', '']));
    }
  }

  function attach(workspace: string): Promise<string> {
    const known = attached.get(workspace);
    if (known !== undefined) return Promise.resolve(known.epoch);
    if (rolledBack !== null) return Promise.reject(new StoreUnavailable(rolledBack));
    const under = attaching.get(workspace);
    if (under !== undefined) return under;
    const attempt = (workspace === '' ? attachInstallation() : attachWorkspace(workspace)).finally(() =>
      attaching.delete(workspace),
    );
    attaching.set(workspace, attempt);
    return attempt;
  }

  function recover(workspace: string): Promise<void> {
    const under = recovering.get(workspace);
    if (under !== undefined) return under;
    const attempt = handInAndOpen(workspace).finally(() => recovering.delete(workspace));
    recovering.set(workspace, attempt);
    return attempt;
  }

  async function handInAndOpen(workspace: string): Promise<void> {
    attached.delete(workspace);
    const estimate = settings.estimate();
    const begun = await run('epoch', workspace, '', [estimate === null ? '' : String(Math.floor(estimate)), '']);
    if (begun[0] === 'absent') throw setBack(workspace, `${nameOf(workspace)} is not in it`);
    const [, epoch = '', open, base = '0'] = begun;
    if (open === '1') return;
    const missing = await journal.after(workspace, Number(base));
    checkSpan(workspace, missing, Number(base), journal.heads().get(workspace)?.step ?? 0);
    for (let from = 0; from === 0 || from < missing.length; from += HANDED_IN) {
      const part = missing.slice(from, from + HANDED_IN);
      const last = from + HANDED_IN >= missing.length ? '1' : '0';
      await run('handin', workspace, epoch, [last, ...part.flatMap((step) => [String(step.step), recordOf(step)])]);
    }
    await openEpoch(workspace, epoch, '');
  }

  /** A tail of a few seconds is what a fail-over loses; more, or steps no longer kept, is another store. */
  function checkSpan(workspace: string, missing: readonly JournaledStep[], base: number, head: number): void {
    if (accepting || head <= base) return;
    const first = missing[0];
    const last = missing.at(-1);
    const span = first === undefined || last === undefined ? Infinity : last.at - first.at;
    if (span <= settings.maxReplayMs) return;
    throw setBack(
      workspace,
      `it ends at step ${base} of ${nameOf(workspace)}, and steps up to ${head} were acknowledged, over more than a fail-over can lose`,
    );
  }

  async function openEpoch(workspace: string, epoch: string, lost: string): Promise<void> {
    for (;;) {
      const [tag, ...gateways] = await run('replay', workspace, epoch, [lost]);
      if (tag === 'open') {
        waiting.delete(workspace);
        return;
      }
      if (tag === 'more') continue;
      if (tag !== 'waiting') throw new StoreUnavailable('Redis: the epoch has changed again');
      waiting.set(workspace, gateways);
      throw new StoreUnavailable(`Redis has lost its history; writes wait for the journal of ${gateways.join(', ')}`);
    }
  }

  return {
    installId: () => installId,
    attach,
    detach: (workspace) => void attached.delete(workspace),
    attached: () => attached,
    recover,
    waiting: () => waiting,
    rolledBack: () => rolledBack,
    nameTaken: () => nameTaken,
    async recoverLost(gateway) {
      if (gateway === gatewayId) throw new Error(`gateway ${gateway} is this one: its journal is here`);
      const [entered] = await topology
        .primaryOf('')
        .connection()
        .pipeline([['SMEMBERS', keyOf('', 'entered')]]);
      for (const workspace of ['', ...textsOf(entered).map(fromPlainText)]) {
        const home = topology.primaryOf(workspace).connection();
        const epoch = String(await home.command('HGET', metaKey(workspace), 'epoch'));
        await openEpoch(workspace, epoch, gateway).catch((error: unknown) => {
          // Others may still be awaited.
          if (!(error instanceof StoreUnavailable)) throw error;
        });
        if (!waiting.has(workspace)) await topology.primaryOf(workspace).barrier.wait(workspace, epoch);
      }
    },
    async acceptLoss() {
      accepting = true;
      try {
        rolledBack = null;
        for (const workspace of ['', ...journal.heads().keys()]) {
          attached.delete(workspace);
          await attach(workspace);
          const begun = await run('epoch', workspace, '', ['', '1']);
          attached.delete(workspace);
          if (begun[0] === 'begun') await recover(workspace);
          await journal.forget(workspace);
        }
      } finally {
        accepting = false;
      }
    },
    async leave() {
      for (const [workspace, { epoch }] of attached) {
        const { barrier, connection } = topology.primaryOf(workspace);
        await barrier.wait(workspace, epoch);
        await connection().command('HDEL', keyOf(workspace, 'gw'), gatewayId);
      }
      attached.clear();
    },
  };
}

/** A lost step as the replay script reads it: strings only. */
function recordOf({ redo, documents }: JournaledStep): string {
  const [needs, commands] = JSON.parse(redo) as [string, readonly (readonly string[])[]];
  return JSON.stringify({ needs, commands, documents });
}

function nameOf(workspace: string): string {
  return workspace === '' ? 'the installation' : `workspace ${workspace}`;
}
