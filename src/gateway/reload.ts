import type { Logger } from 'pino';
import { createHash } from 'node:crypto';
import type { ChosenPolicy, PolicyChoice, ShownPolicy } from '../api/ports.ts';
import { unchangeable } from '../config/changes.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { JsonObject } from '../json/value.ts';
import { INSTALLATION, type LedgerActor, type LedgerKind } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { unpackShort } from '../policy/bundle.ts';
import type { PolicySeals } from '../secrets/policy-seals.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type FileReader, FilesNotRead } from './file-reader.ts';
import { activate, FilesRefused, type InForce, rereadFiles } from './in-force.ts';
import type { PolicyChange } from '../effects/policy-store.ts';
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
  /** @throws StoreUnavailable */
  choose(choice: PolicyChoice, by: LedgerActor, why?: string | null): Promise<ChosenPolicy>;
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
    'activatePolicy' | 'policyInForce' | 'policyHistory' | 'policyBundle' | 'seeUsers' | 'append'
  >;
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
  const { store, seals, current, logger } = parts;
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
      const { changed: files } = found.inForce.own;
      const instead = await activate(store, found.inForce, { how: 'files', by: gateway, again, files }, seals);
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

  async function choose(choice: PolicyChoice, by: LedgerActor, why: string | null): Promise<ChosenPolicy> {
    try {
      const next = await chosen(choice);
      if (next === null) return { kind: 'not_kept' };
      const how = choice.kind === 'before' ? 'rollback' : 'activate';
      await activate(store, next, { how, by, again: 'yes', ...(why !== null && { why }) }, seals);
      await takeOn(next, 'the policies that somebody chose are in force');
      failed = null;
      // Files that were refused are no better for it.
      if (choice.kind === 'files') caughtUp();
      return { kind: 'active', version: next.policies.version };
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
    if (bundle === null || !seals.fits(version, bundle.seal)) return { kind: 'not_kept' };
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
  return `neither the store nor the files here have version ${version ?? ''}, which is in force`;
}

function detailOf(error: unknown): string {
  const isExplained =
    error instanceof FilesRefused ||
    error instanceof FilesNotRead ||
    error instanceof InvalidFiles ||
    error instanceof StoreUnavailable;
  return isExplained ? error.message : 'it could not be read';
}
