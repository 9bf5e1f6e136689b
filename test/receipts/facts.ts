import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ReceiptFacts } from '../../src/effects/ports.ts';
import { openSigner, type ReceiptSigner } from '../../src/receipts/sign.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';

const T = Date.UTC(2026, 4, 6, 7, 8, 9, 123);

export const SALTS: Readonly<Record<string, string>> = Object.fromEntries(
  ['target', 'params', 'idem', 'request', 'response', 'comment', 'evidence'].map((name) => [
    name,
    createHash('md5').update(name).digest('base64url'),
  ]),
);

export const PARAMS = { payment_id: 'pay_77', amount: 5000, currency: 'EUR' };

/** A refund that happened, with everything a receipt can tell. */
export function receiptInput(change: Partial<ReceiptFacts> = {}): ReceiptFacts {
  return {
    id: 'rcp_01j0000000000000000000000a',
    issuedAt: T + 42,
    effect: {
      id: 'eff_01j0000000000000000000000b',
      workspace: 'demo',
      idempotencyKey: 'refund-canary-1',
      fingerprint: 'fp',
      action: {
        type: 'mcp.tool_call',
        tool: 'payments.refund',
        toolDigest: 'd1gest',
        upstream: 'payments',
        kind: 'write',
        target: 'payment:pay_77',
      },
      actor: {
        agentId: 'support-bot',
        agentOwner: 'maria',
        keyId: 'key_abcdefghijkl',
        keyKind: 'agent',
        user: 'maria',
        keyMadeBy: null,
        via: 'effects_api',
      },
      createdAt: T,
      life: {
        state: 'executing',
        lease: {
          fence: { epoch: 1, n: 1, nonce: 'n' },
          owner: 'boot',
          admittedAt: T,
          dispatchBy: T + 2000,
          leaseEnd: T + 9000,
          quiesceUntil: T + 69_000,
        },
      },
      attempt: 1,
      unsent: 0,
      generation: 1,
      firstDispatchAt: T,
      mayHaveHappened: false,
      closed: false,
      holds: [{ budget: 'payments/daily', unit: 'cents', bucket: 'support-bot', window: 'c:0:1', amount: 5000 }],
      holdState: 'held',
      claims: ['payment:pay_77', 'customer:secret'],
      uses: [{ pool: 'gpu', units: 1 }],
      trace: {
        policyVersion: 'v1',
        matched: [
          { rule: 'payments/refund-small', effect: 'allow', unknown: [] },
          { rule: 'payments/night', effect: 'require_approval', unknown: ['time.hour'] },
        ],
        shadow: [],
        observed: null,
      },
      stages: [],
      metadata: null,
      sealed: 'sealed',
    },
    sealed: {
      params: PARAMS,
      salts: Buffer.concat(Object.values(SALTS).map((salt) => Buffer.from(salt, 'base64url'))),
      stateCheck: null,
      claimId: null,
      reservationId: null,
    },
    settledBy: { by: 'owner' },
    evidence: {
      code: 'http_status',
      message: 'HTTP 201',
      answered: { kind: 'http', status: 201 },
      startedAt: T + 5,
      endedAt: T + 40,
    },
    result: {
      kind: 'http',
      status: 201,
      headers: {},
      body: { kind: 'json', value: { refund: 're_9' } },
      truncated: false,
    },
    approval: null,
    ledger: { epoch: 1, seq: 17 },
    ...change,
  };
}

export interface Bench {
  readonly folder: string;
  /** As `main.ts` has them. */
  options(issuer?: string | null): Parameters<typeof openSigner>[0];
  open(issuer?: string | null): Promise<ReceiptSigner>;
  close(): Promise<void>;
}

/** A folder for receipt keys, and signers on it as `main.ts` opens them. */
export async function keyBench(): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), 'receipts-'));
  const options: Bench['options'] = (issuer = null) => ({
    keys: { path: join(folder, 'keys'), read: readKeyFile, make: makeKeyFile },
    issuer,
    store: { installId: 'inst_1', health: () => ({ durability: 'fsync' }) },
    version: '0.1.0',
  });
  return {
    folder: join(folder, 'keys'),
    options,
    open: (issuer) => openSigner(options(issuer)),
    close: () => rm(folder, { recursive: true, force: true }),
  };
}
