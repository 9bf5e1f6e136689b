import type { Logger } from 'pino';
import { createHash } from 'node:crypto';
import type { ApiPorts, ChosenPolicy, ConfirmedPolicy, PolicyChoice, ShownPolicy } from '../api/ports.ts';
import { unchangeable } from '../config/changes.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import type { JsonObject } from '../json/value.ts';
import { INSTALLATION, type LedgerActor, type LedgerKind } from '../effects/model/ledger.ts';
import { ledgerActor, type Principal } from '../effects/model/principal.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { unpackShort } from '../policy/bundle.ts';
import { policyTextToWire } from '../policy/policy-texts.ts';
import type { OftenApproved, SuggestedRule } from '../policy/suggest.ts';
import type { PolicySeals } from '../secrets/policy-seals.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type FileReader, FilesNotRead } from './file-reader.ts';
import { activate, FilesRefused, type InForce, rereadFiles } from './in-force.ts';
import type { PolicyChange } from '../effects/policy-store.ts';
import type { Proposals } from './policy-proposals.ts';
import { MOST_NAMED, type SharedPolicies } from './read-files.ts';

/** If files could not be put in force because the store was away, the next try comes after this long. */
const RETRY_MS = 1_000;
/** If a thread died while it read files, the wait before the next try doubles up to this. */
const LONGEST_RETRY_MS = 60_000;
/** Policies that could not be taken on are not tried again sooner, unless something here has changed, ms. */
const FOLLOW_AGAIN_MS = 5_000;

/** Characters of policies that are shown: the thread that answers calls reads them. */
const MOST_SHOWN = 1024 * 1024;

/**
 * Puts the files in force as they are now, and takes on what other gateways have put in force. Broken files change nothing, and
 * the log says so as an error.
 */
export class Reloader {
  readonly #parts;
  readonly #store;
  readonly #seals;
  readonly #current;
  readonly #logger;
  readonly #proposals;
  #running: Promise<unknown> = Promise.resolve();
  #suggesting: Promise<unknown> = Promise.resolve();
  #staleness: 'refused' | 'unread' | null = null;
  #staleSince: number | null = null;
  #hindrance: string | null = null;
  #previous: Pick<InForce, 'policies' | 'configuration'> | null = null;
  #failed: { readonly version: string; readonly at: number } | null = null;
  #retryMs = RETRY_MS;
  #proven: { readonly digest: string; readonly is: boolean } | null = null;
  #isStopping = false;
  #retry: NodeJS.Timeout | null = null;
  readonly #gateway: LedgerActor;

  /** @param parts.adopt switches everything to what is in force now */
  constructor(parts: {
    readonly configFile: string;
    readonly environment: Readonly<Record<string, string>>;
    readonly store: Pick<
      EffectStore,
      | 'activatePolicy'
      | 'policyInForce'
      | 'policyHistory'
      | 'policyBundle'
      | 'endPolicyProposals'
      | 'seeUsers'
      | 'append'
    >;
    /** Where policies come in force only when a second person has confirmed them; `null`: one is enough. */
    readonly proposals: Proposals | null;
    readonly seals: PolicySeals;
    readonly current: () => InForce;
    readonly adopt: (next: InForce) => void;
    /** Called with where the files are and their current state, if their content is what is in force. */
    readonly noted: (same: InForce) => void;
    readonly reader: Pick<FileReader, 'read' | 'suggest' | 'close'>;
    readonly owner: string;
    readonly logger: Logger;
    readonly metrics: Pick<Metrics, 'alerted'>;
  }) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#seals = parts.seals;
    this.#current = parts.current;
    this.#logger = parts.logger;
    this.#proposals = parts.proposals;
    this.#gateway = { type: 'gateway', id: this.#parts.owner };
  }

  /** Reloads run one after the other. Resolves when this one is done. */
  reload(): Promise<void> {
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#retry = null;
    return this.#inTurn(() => this.#reload());
  }

  /** Comes up to the policies in force in the store; resolves when that is done, or cannot be. */
  follow(): Promise<void> {
    return this.#inTurn(() => this.#follow());
  }

  /** Why the policies in force cannot be those of this gateway; `null` where they are, or are being taken on. */
  hindrance(): string | null {
    return this.#hindrance;
  }

  /** Whether the current files were refused, or could not be read at all and are tried again. */
  staleness(): 'refused' | 'unread' | null {
    return this.#staleness;
  }

  /** Since when that is so, ms. */
  staleSince(): number | null {
    return this.#staleSince;
  }

  /** Puts policies in force, or proposes them where a second person has to confirm it. @throws StoreUnavailable */
  choose(choice: PolicyChoice, by: Principal, why: string | null = null): Promise<ChosenPolicy> {
    return this.#inTurn(() => this.#choose(choice, by, why));
  }

  /** Confirms what was proposed. @throws StoreUnavailable */
  confirm(proposal: string, by: Principal): Promise<ConfirmedPolicy> {
    return this.#inTurn(() => this.#confirm(proposal, by));
  }

  /**
   * The files as they were read at the start; of policies that are not to come in force without a second person,
   * those that are in force are taken on.
   * @throws StoreUnavailable, InvalidFiles
   */
  async begin(again: PolicyChange['again']): Promise<void> {
    const { policies, own } = this.#current();
    const files = { policies, own: { ...own, changed: await this.#changedWhileStopped(own) } };
    const instead = await this.#activateFiles(files, again, true);
    // What other gateways run, or somebody has chosen, is not turned back by files of before.
    if (instead !== null) await this.#inTurn(() => this.#follow());
  }

  /** Which files are not as what is in force has them: at a start every file is read for the first time. */
  async #changedWhileStopped({ changed, parts, version: own }: InForce['own']): Promise<readonly string[]> {
    const version = await this.#store.policyInForce();
    if (version === own) return [];
    const before = version === null ? null : await this.texts(version);
    const now = await unpackShort(parts, MOST_SHOWN);
    if (now === null || before === null || !('files' in before)) return changed;
    const known = new Set(before.files.map((text) => JSON.stringify(policyTextToWire(text))));
    const others = now.filter((text) => !known.has(JSON.stringify(policyTextToWire(text))));
    return others.slice(0, MOST_NAMED).map(({ file }) => file);
  }

  /** What the policies of a version said. @throws StoreUnavailable */
  show(version: string): Promise<ShownPolicy> {
    return this.#inTurn(() => this.#show(version));
  }

  /** The texts of a version that was in force; packed where they are large, `null` where they are not kept. @throws StoreUnavailable */
  async texts(version: string): ReturnType<ApiPorts['policyTexts']> {
    const bundle = await this.#store.policyBundle(version);
    if (bundle === null || !this.#seals.fits(version, bundle.seal)) return null;
    const files = await unpackShort(bundle.parts, MOST_SHOWN);
    return files === null ? { packed: bundle.parts } : { files };
  }

  /**
   * Drafts rules for what people approved time and again, and tries them with the policies in force.
   * @returns `null` where those are not whole in the store, or do not fit the files of now
   * @throws StoreUnavailable
   */
  suggest(groups: readonly OftenApproved[]): Promise<readonly SuggestedRule[] | null> {
    // One after the other, and no reload waits for them.
    const next = this.#suggesting.then(() => this.#suggest(groups));
    this.#suggesting = next.catch(() => undefined);
    return next;
  }

  /** Resolves when no reload is running. */
  async settled(): Promise<void> {
    this.#isStopping = true;
    await this.#parts.reader.close();
    await this.#running;
    if (this.#retry !== null) clearTimeout(this.#retry);
  }

  #record(kind: LedgerKind, data: JsonObject): Promise<void> {
    return this.#store.append(INSTALLATION, [{ kind, effectId: null, actor: this.#gateway, data }]);
  }

  #read(what?: Parameters<typeof rereadFiles>[4]): ReturnType<typeof rereadFiles> {
    return rereadFiles(this.#parts.reader, this.#parts.configFile, this.#parts.environment, this.#current(), what);
  }

  /** Those that were in force here before, where they were compiled for the configuration of now: a rollback is at once. */
  #compiledBefore(version: string): InForce | null {
    const now = this.#current();
    if (this.#previous?.policies.version !== version || this.#previous.configuration !== now.configuration) return null;
    return { ...now, policies: this.#previous.policies, warnings: [] };
  }

  /** The policies of a version, for the configuration of this gateway; `null` where neither the store nor the files have it. */
  async #compiled(version: string): Promise<InForce | null> {
    const bundle = await this.#store.policyBundle(version);
    if (bundle !== null && this.#seals.fits(version, bundle.seal)) return (await this.#read(bundle)).inForce;
    const { inForce } = await this.#read('of the files');
    return inForce.policies.version === version ? inForce : null;
  }

  async #takeOn(next: InForce, message: string): Promise<void> {
    for (const name of unchangeable(this.#current().configuration, next.configuration))
      this.#logger.warn({ setting: name }, 'changes at the next start only');
    await this.#store.seeUsers(next.configuration.rolesOf, this.#gateway);
    if (next.policies.version !== this.#current().policies.version) {
      const { policies: inForce, configuration } = this.#current();
      this.#previous = { policies: inForce, configuration };
    }
    this.#parts.adopt(next);
    this.#hindrance = null;
    for (const warning of next.warnings) this.#logger.warn({ warning }, 'configuration');
    const { policies, own } = next;
    this.#logger.info({ policy_version: policies.version, rules: policies.rules.length }, message);
    if (own.version !== policies.version)
      this.#logger.warn(
        { policy_version: policies.version, files_version: own.version },
        'the policy files here are not in force; svc policy activate puts them in force',
      );
    await this.#record('policy.loaded', { version: policies.version });
  }

  async #reload(): Promise<void> {
    if (this.#isStopping) return;
    try {
      const before = this.#current();
      const found = await this.#read();
      if (found.kind === 'same') {
        this.#parts.noted(found.inForce);
        this.#caughtUp();
        return;
      }
      // Policies that stay as they are were judged before; only the configuration is new. Policy files that were edited
      // say what is wanted now, also where the same stood there before.
      const isNews = found.inForce.own.version !== before.own.version;
      const again: PolicyChange['again'] = isNews ? 'yes' : 'no';
      const instead = await this.#activateFiles(found.inForce, again, isNews);
      const next = instead === null ? found.inForce : await this.#compiled(instead);
      if (next === null) throw new FilesRefused(gone(instead));
      await this.#takeOn(next, 'configuration and policies reloaded');
      this.#caughtUp();
    } catch (error) {
      if (this.#isStopping) return;
      if (error instanceof FilesNotRead) return this.#unread(error);
      this.#becomeStale('refused');
      this.#retryMs = RETRY_MS;
      this.#logger.error({ detail: detailOf(error) }, 'the new configuration is not in force; the last good one is');
      this.#parts.metrics.alerted('configuration_rejected');
      await this.#record('policy.rejected', { in_force: this.#current().policies.version }).catch(() => undefined);
      if (error instanceof StoreUnavailable) this.#later(RETRY_MS);
    }
  }

  /**
   * Puts the policies in the files in force, or, where somebody has to confirm it, proposes them.
   * @returns the version that is in force instead; `null`: they are
   */
  async #activateFiles(
    files: Pick<InForce, 'policies' | 'own'>,
    again: PolicyChange['again'],
    isNews: boolean,
  ): Promise<string | null> {
    const { changed, version } = files.own;
    const inForce = this.#proposals === null ? null : await this.#store.policyInForce();
    if (this.#proposals !== null && inForce !== null && inForce !== version) {
      if (isNews) {
        const proposed = await this.#proposals.propose(files, 'files', this.#gateway, { files: changed });
        if (proposed?.kind === 'proposed')
          this.#logger.warn(
            { policy_version: inForce, files_version: version, proposal: proposed.proposal.id },
            'the policies in the files are proposed; they come in force when two people have confirmed them',
          );
      }
      return inForce;
    }
    // The files say again what is in force: nobody wants what they said in between.
    if (inForce !== null && isNews) await this.#store.endPolicyProposals('of files', this.#gateway);
    return activate(this.#store, files, { how: 'files', by: this.#gateway, again, files: changed }, this.#seals);
  }

  async #follow(): Promise<void> {
    if (this.#isStopping) return;
    try {
      const version = await this.#store.policyInForce();
      if (version === null || version === this.#current().policies.version) {
        this.#hindrance = null;
        return;
      }
      if (this.#failed?.version === version && performance.now() - this.#failed.at < FOLLOW_AGAIN_MS) return;
      this.#failed = { version, at: performance.now() };
      const next = this.#compiledBefore(version) ?? (await this.#compiled(version));
      if (next === null) throw new FilesRefused(gone(version));
      await this.#takeOn(next, 'the policies that are in force in the store were taken on');
      this.#hindrance = null;
      this.#failed = null;
    } catch (error) {
      if (this.#isStopping) return;
      const reason = `The policies in force in the store cannot be those of this gateway: ${detailOf(error)}`;
      if (reason !== this.#hindrance) {
        this.#logger.error({ detail: detailOf(error) }, 'the policies in force cannot be taken on; calls are refused');
        this.#parts.metrics.alerted('configuration_rejected');
      }
      this.#hindrance = reason;
      if (error instanceof StoreUnavailable || error instanceof FilesNotRead) this.#failed = null;
      this.#later(this.#failed === null ? RETRY_MS : FOLLOW_AGAIN_MS);
    }
  }

  async #choose(choice: PolicyChoice, by: Principal, why: string | null): Promise<ChosenPolicy> {
    return this.#orRefused(async () => {
      const next = await this.#chosen(choice);
      if (next === null) return { kind: 'not_kept' };
      const how = choice.kind === 'before' ? 'rollback' : 'activate';
      const details = why === null ? {} : { why };
      const proposed = await this.#proposals?.propose(next, how, by, details);
      if (proposed != null) return proposed;
      await activate(this.#store, next, { how, by: ledgerActor(by), again: 'yes', ...details }, this.#seals);
      await this.#takeOnChosen(next, choice.kind === 'files');
      return { kind: 'active', version: next.policies.version };
    });
  }

  async #confirm(id: string, by: Principal): Promise<ConfirmedPolicy> {
    return this.#orRefused(async () => {
      if (this.#proposals === null) throw new FilesRefused('Policies come in force without a second person here.');
      const joined = await this.#proposals.confirm(id, by);
      return joined.kind === 'complete' ? this.#putInForce(joined.proposal) : joined;
    });
  }

  /** What was proposed is compiled from what the store keeps of it, and has to be the version that it was. */
  async #putInForce(proposal: NonNullable<PolicyChange['proposal']>): Promise<ConfirmedPolicy> {
    const { version, how, by, why, files } = proposal.confirmed;
    const kept = await this.#store.policyBundle(version);
    const { inForce } = await this.#read(kept ?? 'of the files');
    if (inForce.policies.version !== version) throw new FilesRefused(gone(version));
    const own = kept === null ? inForce.own : { ...inForce.own, version, parts: kept.parts };
    const details = { ...(why !== undefined && { why }), ...(files !== undefined && { files }) };
    await activate(this.#store, { ...inForce, own }, { how, by, again: 'yes', ...details, proposal }, this.#seals);
    await this.#takeOnChosen(inForce, inForce.own.version === version);
    return { kind: 'active', version, proposal: proposal.confirmed };
  }

  /** @param isOfFiles whether the files here say the same: files that were refused are no better for anything else */
  async #takeOnChosen(next: InForce, isOfFiles: boolean): Promise<void> {
    await this.#takeOn(next, 'the policies that somebody chose are in force');
    this.#failed = null;
    if (isOfFiles) this.#caughtUp();
  }

  async #orRefused<Done>(
    work: () => Promise<Done>,
  ): Promise<Done | { readonly kind: 'refused'; readonly message: string }> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof StoreUnavailable) throw error;
      return { kind: 'refused', message: detailOf(error) };
    }
  }

  async #chosen(choice: PolicyChoice): Promise<InForce | null> {
    if (choice.kind === 'files') return (await this.#read('of the files')).inForce;
    const history = await this.#store.policyHistory();
    const version =
      choice.kind === 'version' ? choice.version : history.find((one) => one.version !== history[0]?.version)?.version;
    return version === undefined ? null : this.#compiled(version);
  }

  async #show(version: string): Promise<ShownPolicy> {
    const bundle = await this.#store.policyBundle(version);
    if (bundle === null) return { kind: 'not_kept' };
    const isVouchedFor =
      this.#seals.fits(version, bundle.seal) || (await this.#proposals?.isProposed(version)) === true;
    if (!isVouchedFor) return { kind: 'not_kept' };
    const files = await unpackShort(bundle.parts, MOST_SHOWN);
    if (files === null) return { kind: 'too_large' };
    const digest = createHash('sha256')
      .update(JSON.stringify([version, bundle.parts]))
      .digest('base64url');
    if (this.#proven?.digest !== digest) this.#proven = { digest, is: await this.#isOfVersion(bundle) };
    return { kind: 'shown', files, isProven: this.#proven.is };
  }

  async #suggest(groups: readonly OftenApproved[]): Promise<readonly SuggestedRule[] | null> {
    const { version } = this.#current().policies;
    const inForce = await this.#store.policyBundle(version);
    if (inForce === null || !this.#seals.fits(version, inForce.seal)) return null;
    const { reader, configFile, environment } = this.#parts;
    return this.#readable(reader.suggest({ configFile, environment, inForce, groups }));
  }

  async #readable<Read>(reading: Promise<Read>): Promise<Read> {
    try {
      return await reading;
    } catch (error) {
      if (error instanceof FilesNotRead) throw new StoreUnavailable('The policies cannot be read now. Ask again.');
      throw error;
    }
  }

  /** Whether a text is what its version says. Policies that do not fit the configuration of now cannot be held against it. */
  async #isOfVersion(bundle: SharedPolicies): Promise<boolean> {
    try {
      await this.#readable(this.#read(bundle));
      return true;
    } catch (error) {
      if (error instanceof FilesRefused) return false;
      throw error;
    }
  }

  #caughtUp(): void {
    if (this.#staleness !== null)
      this.#logger.info({ policy_version: this.#current().policies.version }, 'the files can be used again');
    this.#staleness = null;
    this.#staleSince = null;
    this.#failed = null;
    this.#retryMs = RETRY_MS;
  }

  #becomeStale(how: 'refused' | 'unread'): void {
    this.#staleness = how;
    this.#staleSince ??= Date.now();
  }

  /** The files' content is not the cause: the next try can succeed without a change. */
  #unread({ message }: FilesNotRead): void {
    this.#becomeStale('unread');
    this.#logger.error(
      { detail: message, retry_after_ms: this.#retryMs },
      'the files could not be read; they are tried again',
    );
    this.#parts.metrics.alerted('configuration_rejected');
    this.#later(this.#retryMs);
    this.#retryMs = Math.min(2 * this.#retryMs, LONGEST_RETRY_MS);
  }

  #later(ms: number): void {
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.reload().then(() => this.#inTurn(() => this.#follow())), ms).unref();
  }

  /** One thing is taken on after the other. */
  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const next = this.#running.then(work);
    this.#running = next.catch(() => undefined);
    return next;
  }
}

function gone(version: string | null): string {
  return `neither the store nor the files here have version ${version ?? ''}`;
}

function detailOf(error: unknown): string {
  const isExplained =
    error instanceof FilesRefused ||
    error instanceof FilesNotRead ||
    error instanceof InvalidFiles ||
    error instanceof StoreUnavailable;
  return isExplained ? error.message : 'it could not be read';
}
