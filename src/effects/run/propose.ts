import type { Proposal } from './call.ts';
import { hasAny } from './fingerprint.ts';
import type { EffectActor } from '../model/effect.ts';
import type { EffectPorts, SealedParams } from '../ports.ts';
import type { Principal } from '../model/principal.ts';
import type { RunRequest } from '../model/run-request.ts';

type Proposed = Pick<RunRequest, 'params' | 'headers' | 'stateCheck' | 'claimId' | 'reservationId' | 'requestIp'>;

type Ports = Pick<EffectPorts, 'newId' | 'newNonce'> & {
  readonly secrets: Pick<EffectPorts['secrets'], 'newSalts' | 'seal'>;
};

/** Ids, nonce and sealed params for the effect that this request may become. */
export class NewProposal implements Proposal {
  readonly effectId: string;
  readonly nonce: string;
  readonly dispatches = null;
  readonly changed = null;
  private apr: string | null = null;
  private plain: SealedParams | null = null;
  private seal: string | null = null;
  private files: NonNullable<SealedParams['files']> | null = null;
  private sealOfAll: string | null = null;
  private readonly ports: Ports;
  private readonly workspace: string;
  private readonly fingerprint: string;
  private readonly call: Proposed;

  constructor(ports: Ports, workspace: string, fingerprint: string, call: Proposed) {
    this.effectId = ports.newId('eff');
    this.nonce = ports.newNonce();
    this.ports = ports;
    this.workspace = workspace;
    this.fingerprint = fingerprint;
    this.call = call;
  }

  approvalId(): string {
    this.apr ??= this.ports.newId('apr');
    return this.apr;
  }

  sealedParams(): SealedParams {
    if (this.plain !== null) return this.plain;
    const { params, headers, stateCheck, claimId, reservationId, requestIp } = this.call;
    const salts = this.ports.secrets.newSalts();
    this.plain = hasAny(headers.sent)
      ? { params, salts, stateCheck, claimId, reservationId, requestIp, headers }
      : { params, salts, stateCheck, claimId, reservationId, requestIp };
    return this.plain;
  }

  sealed(): string {
    const { workspace, effectId, fingerprint } = this;
    this.seal ??= this.ports.secrets.seal(this.sealedParams(), { workspace, effectId, fingerprint });
    return this.seal;
  }

  sealedWithFiles(): string | null {
    const { workspace, effectId, fingerprint, files } = this;
    if (files === null) return null;
    this.sealOfAll ??= this.ports.secrets.seal({ ...this.sealedParams(), files }, { workspace, effectId, fingerprint });
    return this.sealOfAll;
  }

  keepFiles(files: NonNullable<SealedParams['files']>): void {
    this.files = files;
  }
}

/** Who makes the request, as the effect's record keeps it. */
export function actorOf(
  principal: Principal,
  agentId: string,
  agentOwner: string | null,
  via: RunRequest['via'],
): EffectActor {
  return {
    agentId,
    agentOwner,
    keyId: principal.keyId,
    keyKind: principal.kind,
    user: principal.user,
    keyMadeBy: principal.madeBy,
    via,
  };
}
