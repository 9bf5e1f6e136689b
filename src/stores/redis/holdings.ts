import type { ClaimRecord } from '../../effects/model/claim.ts';
import type { ReservationRecord } from '../../effects/model/reservation.ts';
import type { LedgerActor } from '../../effects/model/ledger.ts';
import type { ClaimResult, EffectStore, ReservationResult } from '../../effects/store.ts';
import { texts } from './effect-record.ts';
import { fieldsOf, textsOf } from './connection.ts';
import type { Frame } from './frame.ts';
import type { LostEffects } from './lost.ts';
import { fromPlainText, keyOf, plainText } from './names.ts';

type Holdings = Pick<
  EffectStore,
  | 'takeClaim'
  | 'renewClaim'
  | 'releaseClaim'
  | 'claim'
  | 'claims'
  | 'makeReservation'
  | 'releaseReservation'
  | 'reservation'
  | 'reservations'
>;

/** Effects under the claims that are read, looked at for whether somebody runs them still. */
const MAX_LOOKED_AT = 100;

/** Claims and reservations. */
export function createHoldings(frame: Frame, lost: LostEffects, now: () => number): Holdings {
  async function claimStep(
    op: 'renew' | 'release',
    workspace: string,
    id: string,
    actor: LedgerActor,
    ttlMs: number,
  ): Promise<ClaimRecord | null> {
    const { tag, values } = await frame.step('claim', workspace, [
      op,
      JSON.stringify({ id: plainText(id), ttl: String(ttlMs), atype: actor.type, actor: plainText(actor.id) }),
    ]);
    return tag === 'claim' ? claimOf(workspace, values) : null;
  }

  async function claimOn(workspace: string, target: string): Promise<ClaimRecord | null> {
    const [reply] = await frame.commands(workspace, [['HGETALL', keyOf(workspace, `c:${target}`)]]);
    return claimOfHash(workspace, target, textsOf(reply));
  }

  async function activeClaims(workspace: string): Promise<readonly ClaimRecord[]> {
    const [reply] = await frame.commands(workspace, [['ZRANGEBYSCORE', keyOf(workspace, 'cx'), `(${now()}`, '+inf']]);
    const targets = textsOf(reply);
    const hashes = await frame.commands(
      workspace,
      targets.map((target) => ['HGETALL', keyOf(workspace, `c:${target}`)] as const),
    );
    const claims = hashes.map((hash, index) => claimOfHash(workspace, targets[index] ?? '', textsOf(hash)));
    return claims.filter((claim) => claim !== null).sort((a, b) => order(a.target, b.target));
  }

  /** Whether effects under some claims turned out to be lost; then the claims are others. */
  function haveChanged(workspace: string, claims: readonly ClaimRecord[]): Promise<boolean> {
    const running = claims.flatMap(({ runningEffects }) => runningEffects);
    return lost.declare(workspace, running.slice(0, MAX_LOOKED_AT).map(plainText));
  }

  return {
    async takeClaim({ id, workspace, target, agentId, keyId, ttlMs, actor }): Promise<ClaimResult> {
      const { tag, values } = await frame.step('claim', workspace, [
        'take',
        JSON.stringify({
          id: plainText(id),
          target: plainText(target),
          agent: plainText(agentId),
          key: plainText(keyId),
          ttl: String(ttlMs),
          atype: actor.type,
          actor: plainText(actor.id),
        }),
      ]);
      if (tag === 'too_many')
        return { kind: 'too_many', of: values[0] === 'key' ? 'key' : 'agent', limit: Number(values[1]) };
      return { kind: tag === 'made' ? 'made' : 'held', claim: claimOf(workspace, values) };
    },
    renewClaim: (workspace, id, ttlMs, actor) => claimStep('renew', workspace, id, actor, ttlMs),
    releaseClaim: (workspace, id, actor) => claimStep('release', workspace, id, actor, 0),
    async claim(workspace, id) {
      const [target] = await frame.commands(workspace, [['HGET', keyOf(workspace, 'ci'), plainText(id)]]);
      if (typeof target !== 'string') return null;
      const claim = await claimOn(workspace, target);
      return claim !== null && (await haveChanged(workspace, [claim])) ? claimOn(workspace, target) : claim;
    },
    async claims(workspace) {
      const claims = await activeClaims(workspace);
      return (await haveChanged(workspace, claims)) ? activeClaims(workspace) : claims;
    },
    async makeReservation({
      id,
      workspace,
      pool,
      capacity,
      units,
      agentId,
      keyId,
      ttlMs,
      actor,
    }): Promise<ReservationResult> {
      const { tag, values } = await frame.step('reserve', workspace, [
        'make',
        JSON.stringify({
          id: plainText(id),
          pool: plainText(pool),
          capacity: String(capacity),
          units: String(units),
          agent: plainText(agentId),
          key: plainText(keyId),
          ttl: String(ttlMs),
          atype: actor.type,
          actor: plainText(actor.id),
        }),
      ]);
      if (tag === 'too_many') return { kind: 'too_many', limit: Number(values[0]) };
      if (tag === 'full') return { kind: 'full', free: Number(values[0]) };
      return { kind: 'made', reservation: reservationOf(workspace, values) };
    },
    async releaseReservation(workspace, id, actor) {
      const { tag, values } = await frame.step('reserve', workspace, [
        'release',
        JSON.stringify({ id: plainText(id), atype: actor.type, actor: plainText(actor.id) }),
      ]);
      return tag === 'released' ? reservationOf(workspace, values) : null;
    },
    async reservation(workspace, id) {
      const [pool] = await frame.commands(workspace, [['HGET', keyOf(workspace, 'ri'), plainText(id)]]);
      if (typeof pool !== 'string') return null;
      const [row] = await frame.commands(workspace, [['HGET', keyOf(workspace, `r:${pool}`), plainText(id)]]);
      return typeof row === 'string' ? reservationOfRow(workspace, pool, plainText(id), row) : null;
    },
    async reservations(workspace) {
      const [reply] = await frame.commands(workspace, [['SMEMBERS', keyOf(workspace, 'rp')]]);
      const pools = textsOf(reply);
      const hashes = await frame.commands(
        workspace,
        pools.map((pool) => ['HGETALL', keyOf(workspace, `r:${pool}`)] as const),
      );
      const at = now();
      return hashes
        .flatMap((hash, index) =>
          [...fieldsOf(textsOf(hash))].map(([id, row]) => reservationOfRow(workspace, pools[index] ?? '', id, row)),
        )
        .filter(({ expiresAt }) => expiresAt > at)
        .sort((a, b) => order(a.id, b.id));
    },
  };
}

/** Order of UTF-8 bytes, as the embedded store lists. */
function order(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

function claimOf(workspace: string, values: readonly string[]): ClaimRecord {
  const [id = '', target = '', agent = '', created = '', expires = '', extended = '', running = '', key = ''] = values;
  return {
    id: fromPlainText(id),
    workspace,
    target: fromPlainText(target),
    agentId: fromPlainText(agent),
    createdAt: Number(created),
    expiresAt: Number(expires),
    runningEffects: texts(running).map(fromPlainText),
    extendedUntil: Number(extended),
    ...(key === '' ? {} : { keyId: fromPlainText(key) }),
  };
}

function claimOfHash(workspace: string, target: string, hash: readonly string[]): ClaimRecord | null {
  if (hash.length === 0) return null;
  const fields = fieldsOf(hash);
  const read = (name: string): string => fields.get(name) ?? '';
  return claimOf(workspace, [
    read('id'),
    target,
    read('agent'),
    read('created'),
    read('expires'),
    read('until'),
    read('run'),
    read('key'),
  ]);
}

function reservationOf(workspace: string, values: readonly string[]): ReservationRecord {
  const [id = '', pool = '', agent = '', units = '', created = '', expires = '', key = ''] = values;
  return {
    id: fromPlainText(id),
    workspace,
    pool: fromPlainText(pool),
    agentId: fromPlainText(agent),
    units: Number(units),
    createdAt: Number(created),
    expiresAt: Number(expires),
    ...(key === '' ? {} : { keyId: fromPlainText(key) }),
  };
}

/** A row says its key first; rows of before have none. */
function reservationOfRow(workspace: string, pool: string, id: string, row: string): ReservationRecord {
  const [, key = '', rest = row] = /^key (\S+) (.*)$/s.exec(row) ?? [];
  const [units = '', created = '', expires = '', ...agent] = rest.split(' ');
  return reservationOf(workspace, [id, pool, agent.join(' '), units, created, expires, key]);
}
