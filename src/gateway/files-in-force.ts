import type { Listeners } from '../api/listeners.ts';
import { FileLoader } from '../brain/load-files.ts';
import type { GatewayOptions } from '../cli/ports.ts';
import { watchFiles } from './watch-files.ts';
import type { Note } from '../effects/model/note.ts';
import { newId } from '../effects/run/ids.ts';
import type { ExitStack } from './exit-stack.ts';
import { FileEntities } from './file-entities.ts';
import { FileReader } from './file-reader.ts';
import type { Ground } from './ground.ts';
import type { InForce } from './in-force.ts';
import { Proposals } from './policy-proposals.ts';
import type { RedisStore } from './redis-store.ts';
import { Reloader } from './reload.ts';
import type { Signals } from './signals.ts';
import type { TakeUp } from './take-up.ts';
import type { Views } from './views.ts';

/** Whether the gateways that share a store have the same files in force, for `/readyz`. */
export class Agreement {
  readonly #fleet;
  readonly #current;
  readonly #isOfTwo;

  /**
   * @param fleet `null` if the store has only one gateway
   * @param isOfTwo whether policies come in force only when a second person has confirmed them
   */
  constructor(fleet: Pick<RedisStore, 'announce' | 'others'> | null, current: () => InForce, isOfTwo = false) {
    this.#fleet = fleet;
    this.#current = current;
    this.#isOfTwo = isOfTwo;
  }

  /** Tells the others what is in force here. Call it once the policies have been activated. */
  announce({ policies, configuration }: InForce): void {
    this.#fleet?.announce({ policies: policies.version, configuration: configuration.sharedDigest });
  }

  /** What somebody should look at. */
  notes(): readonly Note[] {
    const { policies, configuration } = this.#current();
    const ofOthers = [...(this.#fleet?.others() ?? [])].flatMap(([gateway, digests]) => [
      ...(digests.policies === policies.version
        ? []
        : [{ part: 'policies', message: `${gateway} has other policies than this gateway.` }]),
      ...(digests.configuration === configuration.sharedDigest
        ? []
        : [{ part: 'configuration', message: `${gateway} has another configuration than this gateway.` }]),
    ]);
    return [...this.#notesOfFiles(this.#current()), ...ofOthers];
  }

  /** Files that are not in force stop nothing; somebody should know of them. */
  #notesOfFiles({ policies, own }: InForce): readonly Note[] {
    if (own.version === policies.version) return [];
    const files =
      own.version === null
        ? 'The policy files here cannot be used, and are not in force'
        : `The policy files here (version ${own.version}) are not in force`;
    const how = this.#isOfTwo
      ? 'Two people have to stand behind policies: svc policy proposals shows what waits for somebody, svc policy activate proposes the files here.'
      : 'svc policy history shows who put it in force, svc policy activate puts the files here in force.';
    const message = `${files}; version ${policies.version} is. ${how}`;
    return [{ part: 'policies', message }];
  }
}

const STALE_NOTES = {
  refused:
    'The files cannot be used as they are; the last good version is in force. The log says what is wrong, and svc config check FILE in which line.',
  unread:
    'The files could not be read; the last good version is in force. They are tried again by themselves. The log says why.',
} as const;

/** Keeps in force what the files here say, and what somebody or another gateway has put in force in the store. */
export class FilesInForce {
  readonly reloader: Reloader;
  readonly #ground: Ground;
  readonly #entities: FileEntities;
  readonly #agreement: Agreement;
  /** Hears where the files stood when they were last read. */
  #adopted: (stamp: string) => void = () => undefined;

  constructor(
    options: Pick<GatewayOptions, 'configFile' | 'environment'>,
    ground: Ground,
    views: Views,
    signals: Signals,
    listeners: Listeners,
  ) {
    const { held, store, secrets, owner, fleet, logger } = ground;
    const { metrics, notifying } = signals;
    const { directory, people } = views;
    const isFleet = fleet !== null;
    const current = (): InForce => held.inForce;
    // Whoever can edit files does not turn it off while the gateway runs.
    const { isOfTwo } = ground.configuration.policies;
    const persons = {
      isUser: (user: string) => directory.isUser(user),
      since: (user: string) => people.since(user),
      keys: (user: string) => store.keys(user),
    };
    this.#ground = ground;
    this.#agreement = new Agreement(fleet, current, isOfTwo);
    this.#entities = openEntities(ground, views, signals);
    held.inForce = this.#entities.take(held.inForce);
    this.reloader = new Reloader({
      ...options,
      store,
      seals: secrets.policySeals,
      proposals: isOfTwo ? new Proposals({ store, seals: secrets.policySeals, persons, newId }) : null,
      current,
      adopt: (next) => {
        held.inForce = this.#entities.take(next);
        this.#agreement.announce(next);
        this.#adopted(next.stamp);
        views.upstreams.update(next.configuration.upstreams, next.configuration.limits);
        directory.update(next.configuration);
        notifying.changed();
        listeners.update(next.configuration.server.tls, next.configuration.listeners);
      },
      noted: (same) => {
        held.inForce = this.#entities.take(same);
        this.#adopted(same.stamp);
      },
      // What another gateway puts in force is to be in force here at once.
      reader: new FileReader({ spare: isFleet }),
      owner,
      logger,
      metrics,
    });
  }

  /** Puts the files in force in the store. @throws StoreUnavailable, InvalidFiles */
  async begin(): Promise<void> {
    const { held, store, fleet, owner } = this.#ground;
    await this.reloader.begin(fleet === null ? 'after_files' : 'no');
    await store.seeUsers(held.inForce.configuration.rolesOf, { type: 'gateway', id: owner });
    await this.#entities.begin();
    this.#agreement.announce(held.inForce);
  }

  /** Comes up to what another gateway has put in force, once this one is at work. */
  async follow(takeUp: Pick<TakeUp, 'isDone'>): Promise<void> {
    const version = takeUp.isDone() ? await this.#ground.store.policyInForce() : null;
    if (version !== null && version !== this.#ground.held.inForce.policies.version) await this.reloader.follow();
  }

  /** From now on a change of the files is taken on. */
  watch(opened: ExitStack): void {
    const { held } = this.#ground;
    const watch = watchFiles(
      () => held.inForce.files,
      () => void this.reloader.reload(),
      held.inForce.stamp,
    );
    // A reload may read a later change than the one that triggered it.
    this.#adopted = (stamp) => watch.adopted(stamp);
    opened.push(() => this.reloader.settled());
    opened.push(() => watch.close());
  }

  stop(): Promise<void> {
    return this.#entities.stop();
  }

  /** What people should look at. */
  notes(): readonly Note[] {
    const staleness = this.reloader.staleness();
    const since = this.reloader.staleSince();
    const problem = this.#entities.problem();
    return [
      ...(staleness === null
        ? []
        : [{ part: 'configuration', message: STALE_NOTES[staleness], ...(since === null ? {} : { since }) }]),
      ...(problem === null ? [] : [{ part: 'brain', message: problem }]),
      ...this.#agreement.notes(),
    ];
  }
}

function openEntities(
  { store, unsealed, owner, fleet, logger }: Ground,
  { brainWriter }: Views,
  { metrics }: Signals,
): FileEntities {
  return new FileEntities({
    loader: new FileLoader({
      store: unsealed,
      writer: brainWriter,
      turns: store.turns,
      actor: { type: 'gateway', id: owner },
    }),
    isFleet: fleet !== null,
    logger,
    alert: () => metrics.alerted('configuration_rejected'),
  });
}
