import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { createVerifier, type PasskeyVerifier } from '../../src/identity/passkeys/verifier.ts';

/** A thread that answers with the challenge and its own number, later if told so, dies, or says nothing. */
const PROGRAM = new URL(
  `data:text/javascript,${encodeURIComponent(`
import { parentPort, threadId } from 'node:worker_threads';
const held = [];
parentPort.on('message', ({ ticket, request: { challenge } }) => {
  const answer = () => parentPort.postMessage({ ticket, verified: { kind: 'refused', why: challenge + ' ' + threadId } });
  if (challenge === 'die') process.exit(1);
  if (challenge === 'throw') throw new Error('torn');
  if (challenge === 'silent') return;
  if (challenge === 'held') return void held.push(answer);
  answer();
  for (const one of held.splice(0)) one();
});
`)}`,
);

let verifier: PasskeyVerifier;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  verifier = createVerifier(PROGRAM);
});
afterEach(async () => {
  await verifier.close();
  vi.useRealTimers();
});

/** What is said of a challenge: the challenge, and the thread that said it. */
async function ask(challenge: string): Promise<readonly string[]> {
  const verified = await verifier.verify({
    kind: 'registration',
    party: { id: 'localhost', origin: 'http://localhost' },
    challenge,
    id: '',
    clientData: '',
    attestation: '',
  });
  return verified.kind === 'refused' ? verified.why.split(' ') : [verified.kind];
}

it('each gets its own answer, whichever is ready first', async () => {
  const [later, sooner] = await Promise.all([ask('held'), ask('now')]);
  expect([later[0], sooner[0]]).toEqual(['held', 'now']);
  expect(later[1]).toBe(sooner[1]);
});

it.each(['die', 'throw'])(
  'a thread that is lost (%s) is no refusal: all who wait are told, and the next has another',
  async (how) => {
    const [, before] = await ask('now');
    const waiting = [ask('silent'), ask(how)].map((one) => expect(one).rejects.toThrow(StoreUnavailable));
    await Promise.all(waiting);
    const [said, after] = await ask('now');
    expect(said).toBe('now');
    expect(after).not.toBe(before);
  },
);

it('more than fifty at once are refused, and those before are not', async () => {
  const fifty = Array.from({ length: 50 }, () => ask('held'));
  await expect(ask('now')).rejects.toThrow('Too many');
  vi.advanceTimersByTime(9_999);
  await Promise.resolve();
  vi.advanceTimersByTime(1);
  const ended = await Promise.allSettled(fifty);
  expect(new Set(ended.map(({ status }) => status))).toEqual(new Set(['rejected']));
  expect((await ask('now'))[0]).toBe('now');
});

it('who gets no answer for ten seconds is told to try again', async () => {
  let isOver = false;
  const waiting = ask('silent').catch((error: unknown) => {
    isOver = true;
    return error;
  });
  vi.advanceTimersByTime(9_999);
  await new Promise((resolve) => setImmediate(resolve));
  expect(isOver).toBe(false);
  vi.advanceTimersByTime(1);
  expect(await waiting).toBeInstanceOf(StoreUnavailable);
});

it('a thread that nobody has needed for a minute ends; one that is needed stays', async () => {
  const [, first] = await ask('now');
  vi.advanceTimersByTime(59_999);
  expect((await ask('now'))[1]).toBe(first);
  vi.advanceTimersByTime(59_999);
  expect((await ask('now'))[1]).toBe(first);
  vi.advanceTimersByTime(60_000);
  expect((await ask('now'))[1]).not.toBe(first);
});

it('the minute begins when the last of those who wait has its answer', async () => {
  const [[, first]] = await Promise.all([ask('held'), ask('now')]);
  vi.advanceTimersByTime(59_999);
  expect((await ask('now'))[1]).toBe(first);
  vi.advanceTimersByTime(1);
  expect((await ask('now'))[1]).toBe(first);
});

it('who waits when the gateway stops is told', async () => {
  const waiting = expect(ask('silent')).rejects.toThrow(StoreUnavailable);
  await verifier.close();
  await waiting;
});
