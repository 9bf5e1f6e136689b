import type { Answer, Segment } from './segment.ts';

export type Restart = (how: 'SIGKILL' | 'SIGTERM') => Promise<void>;

/** What takes time, or a restart. In few segments, because it takes seconds. */
export async function ageing(at: Segment, restart: Restart): Promise<void> {
  const lost = { tool: 'payments.slow', params: { text: 'mode:never' }, idempotency_key: at.fresh() };
  const first = await at.run('no answer in time', lost);
  const expiring = { tool: 'notes.expiring', params: { text: 'x' }, idempotency_key: at.fresh() };
  const asked = await at.run('waits for two seconds', expiring);
  const claim = await at.at('a claim for a second', 'POST', '/claims', {
    key: 'other',
    body: { target: 'payment:short', ttl_s: 1 },
  });
  await restarted(at, restart);
  await killed(at, restart);
  await pausedReads(at);
  await settled(at, first);
  await at.at('it did not happen', 'POST', `/effects/${first.json?.effect_id}/resolve`, {
    body: { outcome: 'not_happened' },
  });
  await at.run('the same runs again', { ...lost });
  await at.at('the claim is over', 'POST', `/claims/${claim.json?.id}/renew`, { key: 'other', body: { ttl_s: 60 } });
  await at.at('another may claim it', 'POST', '/claims', { key: 'bot', body: { target: 'payment:short', ttl_s: 60 } });
  await until(at, asked, (effect) => effect['state'] !== 'pending_approval');
  await at.at('nobody decided', 'GET', `/effects/${asked.json?.effect_id}`, { looks: false });
  await at.at('a vote after the time', 'POST', `/approvals/${asked.json?.approval?.id}/approve`, {
    key: 'maria',
    body: {},
  });
  await at.run('asked for again', expiring);
}

async function restarted(at: Segment, restart: Restart): Promise<void> {
  const kept = { tool: 'notes.add', params: { text: 'before the restart' }, idempotency_key: at.fresh() };
  await at.run('before the restart', kept);
  const waiting = {
    tool: 'payments.refund',
    params: { payment_id: 'p_wait', amount: 60_000, currency: 'EUR' },
    idempotency_key: at.fresh(),
  };
  const { json } = await at.run('waits over the restart', waiting);
  await restart('SIGTERM');
  await at.run('the same after the restart', kept);
  await at.at('approved after the restart', 'POST', `/approvals/${json?.approval?.id}/approve`, {
    key: 'maria',
    body: {},
  });
  await at.at('budgets after the restart', 'GET', '/budgets', { looks: false });
}

/** A gateway that is killed while a call runs: nobody knows what became of it, and nothing else is lost. */
async function killed(at: Segment, restart: Restart): Promise<void> {
  const kept = {
    tool: 'payments.refund',
    params: { payment_id: 'p_kept', amount: 30, currency: 'EUR' },
    idempotency_key: at.fresh(),
  };
  await at.run('before the gateway is killed', kept);
  const call = { ...kept, params: { ...kept.params, reason: 'mode:held' }, idempotency_key: at.fresh() };
  const running = at.run('runs when the gateway is killed', call);
  await Promise.race([at.upstream.holding(1), running]);
  await restart('SIGKILL');
  await running;
  at.upstream.release();
  const again = await at.run('the same after the gateway was killed', call);
  await at.run('what was done before', kept);
  await at.at('budgets after the gateway was killed', 'GET', '/budgets', { looks: false });
  await at.at('it happened', 'POST', `/effects/${again.json?.effect_id}/resolve`, { body: { outcome: 'happened' } });
}

/** How long it takes at most until reads know of a pause, and some time more, ms. */
const HEARD_MS = 2_500;

async function pausedReads(at: Segment): Promise<void> {
  const until = new Date(Date.now() + 7_200_000).toISOString();
  const body = { scope: { tool: 'payments.get' }, reason: 'reads', until };
  const { json } = await at.at('a pause of reads', 'POST', '/pauses', { body });
  await new Promise((resolve) => setTimeout(resolve, HEARD_MS));
  await at.call('a read while it is paused', 'GET', '/payments/v1/payments/p');
  await at.at('lifted', 'DELETE', `/pauses/${json?.id}`);
  await new Promise((resolve) => setTimeout(resolve, HEARD_MS));
  await at.call('a read when it is lifted', 'GET', '/payments/v1/payments/p');
}

/** Waits until it is late enough to say that something did not happen. */
async function settled(at: Segment, of: Answer): Promise<void> {
  await until(at, of, (effect) => Date.parse(String(effect['quiesce_until'])) + 500 < Date.now());
}

/** Waits for what a record says: asking for it changes nothing. */
async function until(at: Segment, of: Answer, is: (effect: Record<string, unknown>) => boolean): Promise<void> {
  const path = `/v1/workspaces/${at.workspace}/effects/${of.json?.effect_id}`;
  for (let tries = 0; tries < 120; tries += 1) {
    const { json } = await at.unrecorded('GET', path, { key: 'tom' });
    if (is(json?.effect ?? {})) return;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}
