import type { ApiPorts } from '../api/ports.ts';
import type { PreferredWait } from '../api/preferred-wait.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { decideApproval } from '../effects/run/decide-approval.ts';
import { standingOf } from '../effects/run/standing.ts';
import { newId } from '../effects/run/ids.ts';
import { previewEffect } from '../effects/run/preview-effect.ts';
import { resolveEffect } from '../effects/run/resolve-effect.ts';
import { createKeyRecord, successorOf } from '../identity/key-record.ts';
import { allProfiles } from '../identity/profiles.ts';
import { type Disclosure, disclosureOf } from '../receipts/commitments.ts';
import { receiptView } from '../receipts/view.ts';
import type { Secrets } from '../secrets/vault.ts';
import type { Core } from './core.ts';
import { policyInputs } from './core-ports.ts';
import type { Drain } from './drain.ts';
import type { FilesInForce } from './files-in-force.ts';
import type { Ground } from './ground.ts';
import type { Health } from './health.ts';
import type { OwnSettings } from './in-force.ts';
import type { Views } from './views.ts';

export function controlPlanePorts(
  { held, store, secrets, signer }: Ground,
  { directory, people, upstreams, brain, brainWriter, pins, entities }: Views,
  { ports, authenticate, stillValid, sessions, passkeys, invalidKeys, run, probe, openParams, lists }: Core,
  { reloader }: FilesInForce,
  own: OwnSettings,
  health: Health,
  drain: Drain,
  preferredWait: PreferredWait,
): ApiPorts {
  const keyContext = () => ({
    pepper: secrets.keyPepper,
    now: store.now(),
    profiles: allProfiles(held.inForce.configuration.auth.profiles),
    workspaces: directory.workspaces(),
    defaultExpiryMs: held.inForce.configuration.auth.defaultExpiryMs,
  });
  return {
    authenticate,
    stillValid,
    sessions,
    passkeys,
    seals: secrets,
    invalidKeys,
    run,
    preferredWait,
    preview: (request) => previewEffect(ports, request),
    running: ports.running,
    choosePolicy: (choice, by, why) => reloader.choose(choice, by, why),
    confirmPolicy: (proposal, by) => reloader.confirm(proposal, by),
    showPolicy: (version) => reloader.show(version),
    policyTexts: (version) => reloader.texts(version),
    policyInput: policyInputs(held, directory, entities, pins),
    suggestRules: (groups) => reloader.suggest(groups),
    resolve: (call) => drain.running(resolveEffect(ports, call)),
    probe,
    decideApproval: (call) => drain.running(decideApproval(ports, people, call)),
    standingOf: (approval) => standingOf(ports, people, approval),
    openParams,
    directory,
    upstream: (id) => upstreams.settings(id),
    catalog: () => held.inForce.catalog,
    policies: () => ({
      set: held.inForce.policies,
      mode: held.inForce.configuration.policies.mode,
      filesVersion: held.inForce.own.version,
    }),
    profiles: () => allProfiles(held.inForce.configuration.auth.profiles),
    keys: {
      create: (request) => createKeyRecord(request, keyContext()),
      successor: (record, madeBy) => successorOf(record, madeBy, keyContext()),
    },
    receipts: {
      view: receiptView,
      disclosure: discloser(secrets),
      jwks: () => signer.jwks(),
      sealExport: signer.sealExport,
    },
    lists,
    brain,
    brainWriter,
    pins,
    pools: () => held.inForce.pools,
    receivers: () => held.inForce.configuration.webhooks,
    settings: own.read,
    newId,
    ...health,
  };
}

/**
 * Opens the seal of a committed effect for a caller who may read its params; `null` if there is none, or it does not
 * open.
 */
export function discloser(
  secrets: Pick<Secrets, 'open'>,
): (effect: EffectRecord, jws: string, approval: ApprovalRecord | null) => Disclosure | null {
  return (effect, jws, approval) => {
    const { workspace, id: effectId, fingerprint, sealed } = effect;
    const opened = sealed === null ? null : secrets.open(sealed, { workspace, effectId, fingerprint });
    return opened === null ? null : disclosureOf(effect, opened, receiptView(jws), approval);
  };
}
