import type { Logger } from 'pino';
import { createHash } from 'node:crypto';
import type { ChosenPolicy, ConfirmedPolicy, PolicyChoice, ShownPolicy } from '../api/ports.ts';
import { unchangeable } from '../config/changes.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { JsonObject } from '../json/value.ts';
import { INSTALLATION, type LedgerActor, type LedgerKind } from '../effects/model/ledger.ts';
import { ledgerActor, type Principal } from '../effects/model/principal.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { unpackShort } from '../policy/bundle.ts';
import type { PolicySeals } from '../secrets/policy-seals.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type FileReader, FilesNotRead } from './file-reader.ts';
import { activate, FilesRefused, type InForce, rereadFiles } from './in-force.ts';
import type { PolicyChange } from '../effects/policy-store.ts';
import type { LastConfirmation, Proposals } from './policy-proposals.ts';
import type { SharedPolicies } from './read-files.ts';

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
export interface Reloader {
  /** Reloads run one after the other. Resolves when this one is done. */
  reload(): Promise<void>;
  /** Comes up to the policies in force in the store; resolves when that is done, or cannot be. */
  follow(): Promise<void>;
  /** Why the policies in force cannot be those of this gateway; `null` where they are, or are being taken on. */
  hindrance(): string | null;
  /** Whether the current files were refused, or could not be read at all and are tried again. */
  staleness(): 'refused' | 'unread' | null;
  /** Puts policies in force, or proposes them where a second person has to confirm it. @throws StoreUnavailable */
  choose(choice: PolicyChoice, by: Principal, why?: string | null): Promise<ChosenPolicy>;
  /** Confirms what was proposed. @throws StoreUnavailable */
  confirm(proposal: string, by: Principal): Promise<ConfirmedPolicy>;
  /**
   * The files as they were read at the start; of policies that are not to come in force without a second person,
   * those that are in force are taken on.
   * @throws StoreUnavailable, InvalidFiles
   */
  begin(again: PolicyChange['again']): Promise<void>;
  /** What the policies of a version said. @throws StoreUnavailable */
  show(version: string): Promise<ShownPolicy>;
  /** Resolves when no reload is running. */
  settled(): Promise<void>;
}

/** @param parts.adopt switches everything to what is in force now */
export function createReloader(parts: {
  readonly configFile: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly store: Pick<
    EffectStore,
    'activatePolicy' | 'policyInForce' | 'policyHistory' | 'policyBundle' | 'endPolicyProposals' | 'seeUsers' | 'append'
  >;
  /** Where policies come in force only when a second person has confirmed them; `null`: one is enough. */
  readonly proposals: Proposals | null;
  readonly seals: PolicySeals;
  readonly current: () => InForce;
  readonly adopt: (next: InForce) => void;
  /** Called with where the files are and their current state, if their content is what is in force. */
  readonly noted: (same: InForce) => void;
  readonly reader: FileReader;
  readonly owner: string;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'alerted'>;
}): Reloader {
  const { store, seals, current, logger, proposals } = parts;
  let running: Promise<unknown> = Promise.resolve();
  let staleness: 'refused' | 'unread' | null = null;
  let hindrance: string | null = null;
  let previous: Pick<InForce, 'policies' | 'configuration'> | null = null;
  let failed: { readonly version: string; readonly at: number } | null = null;
  let retryMs = RETRY_MS;
  let proven: { readonly digest: string; readonly is: boolean } | null = null;
  let isStopping = false;
  let retry: NodeJS.Timeout | null = null;

  const gateway: LedgerActor = { type: 'gateway', id: parts.owner };
  const record = (kind: LedgerKind, data: JsonObject): Promise<void> =>
    store.append(INSTALLATION, [{ kind, effectId: null, actor: gateway, data }]);
  const read = (what?: Parameters<typeof rereadFiles>[4]): ReturnType<typeof rereadFiles> =>
    rereadFiles(parts.reader, parts.configFile, parts.environment, current(), what);

  /** Those that were in force here before, where they were compiled for the configuration of now: a rollback is at once. */
  function compiledBefore(version: string): InForce | null {
    const now = current();
    if (previous?.policies.version !== version || previous.configuration !== now.configuration) return null;
    return { ...now, policies: previous.policies, warnings: [] };
  }

  /** The policies of a version, for the configuration of this gateway; `null` where neither the store nor the files have it. */
  async function compiled(version: string): Promise<InForce | null> {
    const bundle = await store.policyBundle(version);
    if (bundle !== null && seals.fits(version, bundle.seal)) return (await read(bundle)).inForce;
    const { inForce } = await read('of the files');
    return inForce.policies.version === version ? inForce : null;
  }

  async function takeOn(next: InForce, message: string): Promise<void> {
    for (const name of unchangeable(current().configuration, next.configuration))
      logger.warn({ setting: name }, 'changes at the next start only');
    await store.seeUsers(next.configuration.users.map(({ id }) => id));
    if (next.policies.version !== current().policies.version) {
      const { policies: inForce, configuration } = current();
      previous = { policies: inForce, configuration };
    }
    parts.adopt(next);
    hindrance = null;
    for (const warning of next.warnings) logger.warn({ warning }, 'configuration');
    const { policies, own } = next;
    logger.info({ policy_version: policies.version, rules: policies.rules.length }, message);
    if (own.version !== policies.version)
      logger.warn(
        { policy_version: policies.version, files_version: own.version },
        'the policy files here are not in force; svc policy activate puts them in force',
      );
    await record('policy.loaded', { version: policies.version });
  }

  async function reload(): Promise<void> {
    if (isStopping) return;
    try {
      const before = current();
      const found = await read();
      if (found.kind === 'same') {
        parts.noted(found.inForce);
        caughtUp();
        return;
      }
      // Policies that stay as they are were judged before; only the configuration is new. Policy files that were edited
      // say what is wanted now, also where the same stood there before.
      const isNews = found.inForce.own.version !== before.own.version;
      const again: PolicyChange['again'] = isNews ? 'yes' : 'no';
      const instead = await activateFiles(found.inForce, again, isNews);
      const next = instead === null ? found.inForce : await compiled(instead);
      if (next === null) throw new FilesRefused(gone(instead));
      await takeOn(next, 'configuration and policies reloaded');
      caughtUp();
    } catch (error) {
      if (isStopping) return;
      if (error instanceof FilesNotRead) return unread(error);
      staleness = 'refused';
      retryMs = RETRY_MS;
      logger.error({ detail: detailOf(error) }, 'the new configuration is not in force; the last good one is');
      parts.metrics.alerted('configuration_rejected');
      await record('policy.rejected', { in_force: current().policies.version }).catch(() => undefined);
      if (error instanceof StoreUnavailable) later(RETRY_MS);
    }
  }

  /**
   * Puts the policies in the files in force, or, where somebody has to confirm it, proposes them.
   * @returns the version that is in force instead; `null`: they are
   */
  async function activateFiles(
    files: Pick<InForce, 'policies' | 'own'>,
    again: PolicyChange['again'],
    isNews: boolean,
  ): Promise<string | null> {
    const { changed, version } = files.own;
    const inForce = proposals === null ? null : await store.policyInForce();
    if (proposals !== null && inForce !== null && inForce !== version) {
      if (isNews) {
        const proposed = await proposals.propose(files, 'files', gateway, { files: changed });
        if (proposed?.kind === 'proposed')
          logger.warn(
            { policy_version: inForce, files_version: version, proposal: proposed.proposal.id },
            'the policies in the files are proposed; they come in force when two people have confirmed them',
          );
      }
      return inForce;
    }
    // The files say again what is in force: nobody wants what they said in between.
    if (inForce !== null && isNews) await store.endPolicyProposals('of files', gateway);
    return activate(store, files, { how: 'files', by: gateway, again, files: changed }, seals);
  }

  async function begin(again: PolicyChange['again']): Promise<void> {
    const instead = await activateFiles(current(), again, true);
    // What other gateways run, or somebody has chosen, is not turned back by files of before.
    if (instead !== null) await inTurn(follow);
  }

  async function follow(): Promise<void> {
    if (isStopping) return;
    try {
      const version = await store.policyInForce();
      if (version === null || version === current().policies.version) {
        hindrance = null;
        return;
      }
      if (failed?.version === version && performance.now() - failed.at < FOLLOW_AGAIN_MS) return;
      failed = { version, at: performance.now() };
      const next = compiledBefore(version) ?? (await compiled(version));
      if (next === null) throw new FilesRefused(gone(version));
      await takeOn(next, 'the policies that are in force in the store were taken on');
      hindrance = null;
      failed = null;
    } catch (error) {
      if (isStopping) return;
      const reason = `The policies in force in the store cannot be those of this gateway: ${detailOf(error)}`;
      if (reason !== hindrance) {
        logger.error({ detail: detailOf(error) }, 'the policies in force cannot be taken on; calls are refused');
        parts.metrics.alerted('configuration_rejected');
      }
      hindrance = reason;
      if (error instanceof StoreUnavailable || error instanceof FilesNotRead) failed = null;
      later(failed === null ? RETRY_MS : FOLLOW_AGAIN_MS);
    }
  }

  async function choose(choice: PolicyChoice, by: Principal, why: string | null): Promise<ChosenPolicy> {
    return orRefused(async () => {
      const next = await chosen(choice);
      if (next === null) return { kind: 'not_kept' };
      const how = choice.kind === 'before' ? 'rollback' : 'activate';
      const told = why === null ? {} : { why };
      const proposed = await proposals?.propose(next, how, by, told);
      if (proposed != null) return proposed;
      await activate(store, next, { how, by: ledgerActor(by), again: 'yes', ...told }, seals);
      await takeOnChosen(next, choice.kind === 'files');
      return { kind: 'active', version: next.policies.version };
    });
  }

  async function confirm(id: string, by: Principal): Promise<ConfirmedPolicy> {
    return orRefused(async () => {
      if (proposals === null) throw new FilesRefused('Policies come in force without a second person here.');
      const joined = await proposals.confirm(id, by);
      return joined.kind === 'complete' ? putInForce(joined.proposal) : joined;
    });
  }

  /** What was proposed is compiled from what the store keeps of it, and has to be the version that it was. */
  async function putInForce(proposal: LastConfirmation): Promise<ConfirmedPolicy> {
    const { version, how, by, why, files } = proposal.confirmed;
    const kept = await store.policyBundle(version);
    const { inForce } = await read(kept ?? 'of the files');
    if (inForce.policies.version !== version) throw new FilesRefused(gone(version));
    const own = kept === null ? inForce.own : { ...inForce.own, version, parts: kept.parts };
    const told = { ...(why !== undefined && { why }), ...(files !== undefined && { files }) };
    await activate(store, { ...inForce, own }, { how, by, again: 'yes', ...told, proposal }, seals);
    await takeOnChosen(inForce, inForce.own.version === version);
    return { kind: 'active', version, proposal: proposal.confirmed };
  }

  /** @param isOfFiles whether the files here say the same: files that were refused are no better for anything else */
  async function takeOnChosen(next: InForce, isOfFiles: boolean): Promise<void> {
    await takeOn(next, 'the policies that somebody chose are in force');
    failed = null;
    if (isOfFiles) caughtUp();
  }

  async function orRefused<Done>(
    work: () => Promise<Done>,
  ): Promise<Done | { readonly kind: 'refused'; readonly message: string }> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof StoreUnavailable) throw error;
      return { kind: 'refused', message: detailOf(error) };
    }
  }

  async function chosen(choice: PolicyChoice): Promise<InForce | null> {
    if (choice.kind === 'files') return (await read('of the files')).inForce;
    const history = await store.policyHistory();
    const version =
      choice.kind === 'version' ? choice.version : history.find((one) => one.version !== history[0]?.version)?.version;
    return version === undefined ? null : compiled(version);
  }

  async function show(version: string): Promise<ShownPolicy> {
    const bundle = await store.policyBundle(version);
    if (bundle === null) return { kind: 'not_kept' };
    const isVouchedFor = seals.fits(version, bundle.seal) || (await proposals?.isProposed(version)) === true;
    if (!isVouchedFor) return { kind: 'not_kept' };
    const files = await unpackShort(bundle.parts, MOST_SHOWN);
    if (files === null) return { kind: 'too_large' };
    const digest = createHash('sha256')
      .update(JSON.stringify([version, bundle.parts]))
      .digest('base64url');
    if (proven?.digest !== digest) proven = { digest, is: await isOfVersion(bundle) };
    return { kind: 'shown', files, isProven: proven.is };
  }

  /** Whether a text is what its version says. Policies that do not fit the configuration of now cannot be held against it. */
  async function isOfVersion(bundle: SharedPolicies): Promise<boolean> {
    try {
      await read(bundle);
      return true;
    } catch (error) {
      if (error instanceof FilesRefused) return false;
      if (error instanceof FilesNotRead) throw new StoreUnavailable('The policies cannot be read now. Ask again.');
      throw error;
    }
  }

  function caughtUp(): void {
    staleness = null;
    failed = null;
    retryMs = RETRY_MS;
  }

  /** The files' content is not the cause: the next try can succeed without a change. */
  function unread({ message }: FilesNotRead): void {
    staleness = 'unread';
    logger.error({ detail: message, retry_after_ms: retryMs }, 'the files could not be read; they are tried again');
    parts.metrics.alerted('configuration_rejected');
    later(retryMs);
    retryMs = Math.min(2 * retryMs, LONGEST_RETRY_MS);
  }

  function later(ms: number): void {
    if (retry !== null) clearTimeout(retry);
    retry = setTimeout(() => void reloadNext().then(() => inTurn(follow)), ms).unref();
  }

  /** One thing is taken on after the other. */
  function inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const next = running.then(work);
    running = next.catch(() => undefined);
    return next;
  }

  function reloadNext(): Promise<void> {
    if (retry !== null) clearTimeout(retry);
    retry = null;
    return inTurn(reload);
  }

  return {
    reload: reloadNext,
    follow: () => inTurn(follow),
    hindrance: () => hindrance,
    staleness: () => staleness,
    choose: (choice, by, why = null) => inTurn(() => choose(choice, by, why)),
    confirm: (proposal, by) => inTurn(() => confirm(proposal, by)),
    begin,
    show: (version) => inTurn(() => show(version)),
    async settled() {
      isStopping = true;
      await parts.reader.close();
      await running;
      if (retry !== null) clearTimeout(retry);
    },
  };
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
