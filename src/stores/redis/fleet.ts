import { randomUUID } from 'node:crypto';
import { StoreUnavailable } from '../../effects/store.ts';
import type { JournaledStep, Neighbours, StepJournal } from '../journal/step-journal.ts';
import { keyOf, metaKey } from './names.ts';
import { stored, unstored } from './rows/names.ts';
import type { OperatorEvent } from '../open-rows.ts';
import { openingStep, redoRecord } from './rows/redo.ts';
import { textsOf } from './connection.ts';
import { noteOf, type ScriptName } from './scripts.ts';
import type { StoreTime } from './store-time.ts';
import type { Topology } from './topology.ts';

/** Field of a meta hash with the id of the installation. A store of another format does not have it. */
export const INSTALL_FIELD = 'rows';

/** Why nothing is done with a store of another format. */
export const OTHER_FORMAT =
  'The store on Redis was written by another version of svc-gateway, in a format that this one does not read, and there is no migration of a store on Redis. Go on with that version; or begin anew: stop all its gateways, and give this one a Redis of its own (another server, or another database number) and another store.journal. svc migrate --check says what stays behind';

/** How many lost steps are handed in with one command. */
const HANDED_IN = 50;

export interface FleetSettings {
  readonly topology: Topology;
  readonly journal: StepJournal;
  readonly gatewayId: string;
  /** Identifies this run of the gateway. What an earlier boot left executing is unknown once this one has joined. */
  readonly boot: string;
  readonly time: StoreTime;
  /** Missing acknowledged steps may span at most this, ms. If they span more, the store was set back. */
  readonly maxReplayMs: number;
  readonly operatorEvent: OperatorEvent;
  /** Called at each join with the boots of gateways that have ended in the workspace. @param count grows with each */
  readonly onEnded: (workspace: string, count: string, boots: readonly string[]) => void;
}

/**
 * The gateways of one installation, as the store sees them. Each registers in a workspace before its first step there.
 * When the replication history changes (a fail-over, a restart), acknowledged steps may be lost. Then writes wait until
 * every registered gateway has handed in what its journal has beyond the store's head.
 */
export type Fleet = ReturnType<typeof createFleet>;

interface AcceptedLoss {
  /** `new` before it has a number. */
  readonly number: string;
  /** The gateway in whose place the operator accepted it. */
  readonly by: string;
}

export function createFleet(settings: FleetSettings) {
  const { topology, journal, gatewayId, boot, time } = settings;
  const attached = new Map<string, string>();
  const waiting = new Map<string, readonly string[]>();
  const attaching = new Map<string, Promise<string>>();
  const recovering = new Map<string, Promise<void>>();
  let rolledBack: string | null = null;
  let refused: string | null = null;
  /** Set while an accepted loss is being followed. */
  let following: Promise<readonly string[]> | null = null;
  let hasLeft = false;
  let installId = journal.memory?.installId ?? '';

  function run(
    name: ScriptName,
    workspace: string,
    epoch: string,
    args: readonly (string | Buffer)[],
  ): Promise<readonly string[]> {
    return topology
      .primaryOf(workspace)
      .connection()
      .run(name, workspace, [epoch, gatewayId, time.argument(), ...args]);
  }

  const decided: OperatorEvent = (kind, gateway) => stored(settings.operatorEvent(kind, gateway));

  function setBack(workspace: string, message: string): StoreUnavailable {
    const reason = `The store is not the one that was left: ${message}. Restore it, or accept the loss (svc store accept-loss).`;
    attached.delete(workspace);
    // While an accepted loss is being followed, missing parts of the store are still to come.
    if (following === null) rolledBack = reason;
    return new StoreUnavailable(reason);
  }

  interface Joining {
    readonly install?: string;
    /** The first epoch of the workspace if it is created. Without it, the workspace is not created. */
    readonly first?: string;
    readonly returns?: '1';
  }
  function join(workspace: string, { install = installId, first = '', returns }: Joining = {}) {
    return run('join', workspace, '', [install, first, returns ?? '', boot]);
  }

  /**
   * Attaches to the installation. If this gateway has never seen one, it creates the id; else it must be the one that
   * it remembers.
   */
  async function attachInstallation(): Promise<string> {
    const isNew = journal.memory === null;
    if (isNew) await checkName();
    let install = journal.memory?.installId ?? randomUUID();
    let reply = await join('', { install, first: isNew ? '1' : '' });
    refused = null;
    if (reply[0] === 'foreign') {
      const there = await topology.primaryOf('').connection().command('HGET', metaKey(''), INSTALL_FIELD);
      if (typeof there !== 'string') throw refusal(OTHER_FORMAT);
      if (isNew) {
        install = there;
        reply = await join('', { install });
      }
    }
    installId = install;
    const isKnown = reply[0] !== 'absent' && reply[0] !== 'foreign';
    if (isKnown && isNew) await journal.remember({ installId, gatewayId, accepted: 0 });
    return joined('', reply);
  }

  /**
   * A registered name belongs to a journal with acknowledged steps. A gateway with an empty journal must not use that
   * name.
   */
  async function checkName(): Promise<void> {
    const registered = await topology.primaryOf('').connection().command('HEXISTS', keyOf('', 'gw'), gatewayId);
    refused = null;
    if (Number(registered) === 0) return;
    const version = await topology.primaryOf('').connection().command('HGET', metaKey(''), INSTALL_FIELD);
    if (typeof version !== 'string') throw refusal(OTHER_FORMAT);
    throw refusal(
      `gateway ${gatewayId} is registered in the store, and its journal is not in the folder given: give it its folder back, or start under another name and declare ${gatewayId} lost`,
    );
  }

  function refusal(why: string): StoreUnavailable {
    refused = why;
    return new StoreUnavailable(why);
  }

  async function attachWorkspace(workspace: string): Promise<string> {
    await attach('');
    const home = topology.primaryOf('').connection();
    const [known, install] = await home.pipeline([
      ['SISMEMBER', keyOf('', 'entered'), stored(workspace)],
      ['HGET', metaKey(''), INSTALL_FIELD],
    ]);
    if (install !== installId)
      throw setBack('', install === null ? 'it is empty' : 'it belongs to another installation');
    const isKnown = Number(known) === 1;
    const mayMint = !isKnown && !journal.heads().has(workspace);
    const reply = await join(workspace, { first: mayMint ? '1' : '' });
    const epoch = await joined(workspace, reply);
    if (!isKnown) {
      const entered = await run('note', '', await attach(''), noteOf({ entered: stored(workspace) }));
      if (entered[0] !== 'ok') throw new StoreUnavailable('Redis: the installation is changing its epoch');
    }
    return epoch;
  }

  async function joined(workspace: string, reply: readonly string[]): Promise<string> {
    const [tag = '', epoch = '', steps = '0', now = '', ahead = '', count = '', ...ended] = reply;
    switch (tag) {
      case 'joined': {
        const head = journal.heads().get(workspace);
        if (head !== undefined && head.step > Number(steps)) {
          throw setBack(
            workspace,
            `it ends at step ${steps} of ${nameOf(workspace)}, and step ${head.step} was acknowledged`,
          );
        }
        if (ahead === '') time.observe(Number(now));
        else time.disbelieve(workspace, Number(now), Number(ahead));
        // A later epoch waits for this gateway only if its registration is as durable as its steps.
        await topology.primaryOf(workspace).barrier.wait(workspace, epoch);
        settings.onEnded(workspace, count, ended);
        attached.set(workspace, epoch);
        waiting.delete(workspace);
        return epoch;
      }
      case 'absent':
        throw setBack(workspace, `${nameOf(workspace)} is not in it`);
      case 'foreign':
        throw setBack(workspace, 'it belongs to another installation');
      case 'lost':
        // Others continued without this journal. What it has beyond the store must not come back among later steps.
        await journal.forget(workspace);
        return joined(workspace, await join(workspace, { returns: '1' }));
      default:
        await recover(workspace);
        return joined(workspace, await join(workspace));
    }
  }

  function attach(workspace: string): Promise<string> {
    const known = attached.get(workspace);
    if (known !== undefined) return Promise.resolve(known);
    if (hasLeft) return Promise.reject(new StoreUnavailable('the store is closed'));
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
    if (hasLeft) return Promise.reject(new StoreUnavailable('the store is closed'));
    const attempt = handInAndOpen(workspace).finally(() => recovering.delete(workspace));
    recovering.set(workspace, attempt);
    return attempt;
  }

  async function handInAndOpen(workspace: string): Promise<void> {
    // The installation is opened only when each gateway has handed in what it has of every workspace. So no workspace
    // is opened by a gateway that does not know who else was there.
    if (workspace === '') for (const other of journal.heads().keys()) if (other !== '') await handIn(other, null);
    const { isOpen, epoch } = await handIn(workspace, null);
    if (isOpen) waiting.delete(workspace);
    else await openEpoch(workspace, epoch, '');
  }

  /**
   * Hands in what the journal has beyond the base of the epoch, and begins an epoch if there is none for this history.
   * @param accepted the accepted loss for which this is done. Then any number of steps is allowed
   * @returns whether the epoch is open, and whether this gateway had a part in that
   */
  async function handIn(
    workspace: string,
    accepted: AcceptedLoss | null,
  ): Promise<{
    readonly epoch: string;
    readonly isOpen: boolean;
    /** The epoch waited for this gateway, and it has handed in. */
    readonly hadPart: boolean;
  }> {
    attached.delete(workspace);
    const estimate = time.estimate();
    const head = journal.heads().get(workspace);
    const begun = await run('epoch', workspace, '', [
      estimate === null ? '' : String(Math.floor(estimate)),
      accepted?.number ?? '',
      accepted === null ? '' : String(Math.max(head?.epoch ?? 0, followed())),
      accepted === null ? '' : decided('store.loss_accepted', accepted.by),
    ]);
    if (begun[0] === 'absent') throw setBack(workspace, `${nameOf(workspace)} is not in it`);
    const [, epoch = '', open, base = '0', from = '0', handedIn, lostIn = '0'] = begun;
    if (open === '1' || handedIn === '1') return { epoch, isOpen: open === '1', hadPart: handedIn === '1' };
    const isOlder = head !== undefined && head.step > Number(base);
    const kept = isOlder ? await journal.after(workspace, Number(base)) : [];
    const missing = kept.filter((step) => step.epoch >= Number(from));
    const dropped = journal.dropped(workspace);
    const isWhole = dropped === null || dropped.step <= Number(base) || dropped.epoch < Number(from);
    // What was given up when this gateway was declared lost is not missed. A set-back store may know of an earlier loss.
    const isGivenUp = missing.length === 0 && (head?.epoch ?? 0) < Number(lostIn);
    if (accepted === null && !isGivenUp) checkSpan(workspace, isWhole ? missing : [], Number(base), head?.step ?? 0);
    const known = journal.neighbours(workspace);
    const isNews = known !== null && known.step > Number(base);
    // What a gateway knew that has left is in the store, unless the store was emptied or set back, or a replica took over
    // that did not see it leave.
    const gone = isNews ? known.gone.map((gateway) => (accepted === null ? `?${gateway}` : gateway)) : [];
    const neighbours = isNews ? [...known.gateways, ...gone] : [];
    for (let at = 0; at === 0 || at < missing.length; at += HANDED_IN) {
      const part = missing.slice(at, at + HANDED_IN);
      const last = at + HANDED_IN >= missing.length ? '1' : '0';
      await run('handin', workspace, epoch, [
        last,
        JSON.stringify(neighbours),
        ...part.flatMap((step) => [String(step.step), redoRecord(step)]),
      ]);
    }
    // Nothing is left of what was acknowledged, so there is nothing to wait for.
    if (accepted !== null && isOlder && missing.length === 0) await journal.forget(workspace);
    return { epoch, isOpen: false, hadPart: true };
  }

  /**
   * Brings what the journal knows into the epochs of an accepted loss.
   * @param mayLeaveOut whether to give up what came too late to be handed in; otherwise this gateway stays out
   * @returns gateways that are awaited
   */
  async function bringIn(accepted: AcceptedLoss, mayLeaveOut: boolean): Promise<readonly string[]> {
    const workspaces = [...journal.heads().keys()].filter((workspace) => workspace !== '');
    for (const workspace of [...workspaces, '']) {
      if (workspace !== '') await enter(workspace);
      const { isOpen, hadPart } = await handIn(workspace, accepted);
      const isLeftOut = isOpen && !hadPart && (await journal.after(workspace, 0)).length > 0;
      if (!isLeftOut) continue;
      if (mayLeaveOut) await journal.forget(workspace);
      else throw new StoreUnavailable(`the loss was accepted without what this gateway has of ${nameOf(workspace)}`);
    }
    const { memory } = journal;
    if (memory !== null) await journal.remember({ ...memory, accepted: Number(accepted.number) });
    rolledBack = null;
    await Promise.allSettled(['', ...workspaces].map(recover));
    return [...new Set([...waiting.values()].flat())];
  }

  /** Goes to a part of the store that may be gone. New epochs are higher than all that were seen. */
  async function enter(workspace: string): Promise<void> {
    const [tag] = await join(workspace, { first: String(journal.heads().get(workspace)?.epoch ?? 1) });
    if (tag === 'foreign') throw new StoreUnavailable('The store belongs to another installation.');
    if (tag !== 'lost') return;
    await journal.forget(workspace);
    await join(workspace, { returns: '1' });
  }

  /**
   * A fail-over loses the last few seconds. If more is missing, or the steps are no longer kept, this is another store.
   */
  function checkSpan(workspace: string, missing: readonly JournaledStep[], base: number, head: number): void {
    if (head <= base) return;
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
      const reply = await run('redo', workspace, epoch, [lost, decided('gateway.declared_lost', lost)]);
      const [tag, ...gateways] = reply;
      if (tag === 'open') {
        waiting.delete(workspace);
        return;
      }
      if (tag === 'ok') {
        waiting.delete(workspace);
        const made = openingStep(workspace, Number(epoch), reply);
        await Promise.all([journal.appended(made), topology.primaryOf(workspace).barrier.wait(workspace, epoch)]);
        return;
      }
      if (tag === 'more') continue;
      if (tag !== 'waiting') throw new StoreUnavailable('Redis: the epoch has changed again');
      waiting.set(workspace, gateways);
      throw new StoreUnavailable(`Redis has lost its history; writes wait for the journal of ${gateways.join(', ')}`);
    }
  }

  /** The last loss that was accepted in the installation; its number is 0 if there was none. */
  async function acceptedLoss(): Promise<AcceptedLoss> {
    const found = await topology.primaryOf('').connection().command('HMGET', metaKey(''), 'accepted', 'acceptor');
    const [number, by] = Array.isArray(found) ? found : [];
    // Versions before did not store who it was.
    return { number: String(number ?? 0), by: typeof by === 'string' ? by : gatewayId };
  }

  /** The number of the last accepted loss for which this gateway has handed in. */
  function followed(): number {
    return journal.memory?.accepted ?? 0;
  }

  function follow(work: () => Promise<readonly string[]>): Promise<readonly string[]> {
    following ??= work().finally(() => {
      following = null;
    });
    return following;
  }

  return {
    installId: (): string => installId,
    /** The epoch in which this gateway is registered; registers it if needed. @throws StoreUnavailable */
    attach,
    /** Drops what was known of a workspace. */
    detach: (workspace: string): void => void attached.delete(workspace),
    /** The epochs in which this gateway is registered, by workspace. */
    attached: (): ReadonlyMap<string, string> => attached,
    /**
     * After a change of history or epoch: hands in steps, and waits for the others.
     * @throws StoreUnavailable while others are awaited
     */
    recover,
    /** Workspaces whose writes wait, with the gateways for which they wait. */
    waiting: (): ReadonlyMap<string, readonly string[]> => waiting,
    /** Why this store is not the one that this gateway last used, or `null`. */
    rolledBack: (): string | null => rolledBack,
    /** Why this gateway may not work with this store, or not under its name; or `null`. */
    refused: (): string | null => refused,
    /**
     * An operator says that a gateway's journal is lost: writes no longer wait for it.
     * @throws Error if no gateway of that name is registered
     */
    async recoverLost(gateway: string): Promise<void> {
      if (gateway === gatewayId) throw new Error(`gateway ${gateway} is this one: its journal is here`);
      const entered = await topology.primaryOf('').connection().command('SMEMBERS', keyOf('', 'entered'));
      let isKnown = false;
      for (const workspace of ['', ...textsOf(entered).map(unstored)]) {
        const home = topology.primaryOf(workspace).connection();
        const [epoch, registered] = await home.pipeline([
          ['HGET', metaKey(workspace), 'epoch'],
          ['HEXISTS', keyOf(workspace, 'gw'), gateway],
        ]);
        if (Number(registered) === 0 || typeof epoch !== 'string') continue;
        isKnown = true;
        await openEpoch(workspace, epoch, gateway).catch((error: unknown) => {
          // Other gateways may still be awaited.
          if (!(error instanceof StoreUnavailable && waiting.has(workspace))) throw error;
        });
      }
      if (!isKnown) throw new Error(`no gateway ${gateway} is registered in the store`);
    },
    /**
     * An operator accepts that the store was set back. It continues in a new epoch with what the journals have.
     * @returns gateways whose journals are awaited
     */
    async acceptLoss(): Promise<readonly string[]> {
      await following?.catch(() => undefined);
      return follow(async () => {
        const there = await acceptedLoss();
        if (Number(there.number) > followed()) return bringIn(there, true);
        if (journal.memory === null) throw new Error('no store is remembered beside this gateway');
        ({ installId } = journal.memory);
        await enter('');
        await handIn('', { number: 'new', by: gatewayId });
        return bringIn(await acceptedLoss(), true);
      });
    },
    /** Hands in steps for a loss that an operator accepted beside another gateway, and rejoins the fleet. */
    async followAcceptance(): Promise<void> {
      if (rolledBack === null) return;
      await follow(async () => {
        const there = await acceptedLoss();
        return Number(there.number) > followed() ? bringIn(there, false) : [];
      });
    },
    /** Stores who is registered in a workspace at one of its steps. */
    noteNeighbours: (workspace: string, now: Neighbours): Promise<void> =>
      journal.noteNeighbours(workspace, {
        ...now,
        gateways: now.gateways.filter((gateway) => gateway !== gatewayId).sort(),
      }),
    /**
     * Leaves the installation in order, so that no later epoch waits for this gateway. Nothing registers it again: what
     * comes later is refused, and what is under way is waited for.
     */
    async leave(): Promise<void> {
      hasLeft = true;
      await Promise.allSettled([...attaching.values(), ...recovering.values(), following]);
      for (const [workspace, epoch] of attached) {
        const { barrier, connection } = topology.primaryOf(workspace);
        await barrier.wait(workspace, epoch);
        await connection().run('leave', workspace, [epoch, gatewayId, time.argument()]);
      }
      attached.clear();
    },
  };
}

function nameOf(workspace: string): string {
  return workspace === '' ? 'the installation' : `workspace ${workspace}`;
}
