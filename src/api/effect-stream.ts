import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { effectToWire } from '../effects/wire/effect.ts';
import { withoutContent } from '../effects/model/without-content.ts';
import { withheldBecause } from '../effects/wire/withheld.ts';
import { permit } from '../identity/permissions.ts';
import type { ApiApp, Caller } from './app.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, InWorkspace } from './schema.ts';

/** How often the ledger of a workspace is read that somebody watches, ms. */
const CHECK_MS = 500;
/** How often it is looked whether those who watch still may, ms. It is also a sign of life to them. */
const RECHECK_MS = 2_000;
/** The most events of one look, and the most effects that are shown of it. Beyond that only their number is told. */
const MOST_EVENTS = 400;
const MOST_EFFECTS = 100;
/** The most that a slow reader may have waiting, bytes. */
const MOST_WAITING = 256 * 1024;
const MOST_STREAMS = 200;
/** Of one user, over all keys: nobody takes all of them from the others. */
const MOST_OF_USER = 100;
const MOST_OF_KEY = 20;

interface Watcher {
  readonly caller: Caller;
  readonly headers: IncomingHttpHeaders;
  /** Whether a session of the console opened it; then it ends with that. */
  readonly isVisitor: boolean;
  readonly stream: Readable;
}

/** Those who watch the effects of one workspace. They share one series of reads. */
interface Watched {
  readonly watchers: Set<Watcher>;
  /** The last event that was read; `null` before the first look. */
  after: number | null;
  recheckAt: number;
}

const Events = Type.Unsafe<Readable>({
  description: 'Events.',
  content: { 'text/event-stream': { schema: { type: 'string' } } },
});

type StreamPorts = Pick<ApiPorts, 'store' | 'sessions' | 'stillValid' | 'settings' | 'catalog'>;

/**
 * `GET …/effects/stream`: effects as they change, as server-sent events. `effect`: one, without receipt and answer.
 * `more`: so much happened that only the list has it. Costs nothing while nobody watches.
 */
export function addEffectStream(app: ApiApp, ports: StreamPorts): void {
  const streams = new EffectStreams(ports);

  app.get(
    '/v1/workspaces/:ws/effects/stream',
    {
      // To HEAD it would be opened as well, for nobody, and never end.
      exposeHeadRoute: false,
      config: { endpoint: 'effects.read' },
      schema: {
        operationId: 'streamEffects',
        summary: 'Effects as they change (server-sent events)',
        description:
          'Events: `effect` (an effect as the list shows it, without receipt and result), `more` (too many at once: ask for the list). After a break ask for the list first.',
        tags: ['effects'],
        params: InWorkspace,
        response: answers({ 200: Events }),
      },
    },
    async (request, reply) => {
      const stream = await streams.open(request.params.ws, callerOf(request), request.headers);
      const asItComes = { 'cache-control': 'no-store', 'x-accel-buffering': 'no' };
      return reply.type('text/event-stream').headers(asItComes).send(stream);
    },
  );

  app.addHook('preClose', async () => streams.end());
}

class EffectStreams {
  readonly #ports: StreamPorts;
  readonly #watched = new Map<string, Watched>();
  #isOver = false;

  constructor(ports: StreamPorts) {
    this.#ports = ports;
  }

  /** Opens a stream, where not too many are open. @throws Refused */
  async open(workspace: string, caller: Caller, headers: IncomingHttpHeaders): Promise<Readable> {
    const isVisitor = (await this.#ports.sessions.visitorOf(headers)) !== null;
    if (this.#isOver) throw refuse('not_ready', 'The gateway is shutting down.', { retryAfterMs: 1_000 });
    // Counted and added in one turn: of many that come at once no more pass than there is room for.
    const all = [...this.#watched.values()].flatMap(({ watchers }) => [...watchers]);
    const { user, keyId } = caller.principal;
    const ofUser = all.filter((one) => user !== null && one.caller.principal.user === user);
    const ofKey = all.filter((one) => one.caller.principal.keyId === keyId);
    const isOver = all.length >= MOST_STREAMS || ofUser.length >= MOST_OF_USER || ofKey.length >= MOST_OF_KEY;
    if (isOver) throw refuse('too_many_requests', 'Too many streams of effects are open.', { retryAfterMs: 10_000 });
    const watcher = { caller, headers, isVisitor, stream: new Readable({ read() {} }) };
    this.#watch(workspace, watcher);
    return watcher.stream;
  }

  /** Ends all of them, and lets none begin: the server waits for each. */
  end(): void {
    this.#isOver = true;
    for (const of of this.#watched.values()) for (const watcher of of.watchers) dismiss(of, watcher);
    this.#watched.clear();
  }

  #watch(workspace: string, watcher: Watcher): void {
    const known = this.#watched.get(workspace);
    const of = known ?? { watchers: new Set<Watcher>(), after: null, recheckAt: performance.now() + RECHECK_MS };
    of.watchers.add(watcher);
    watcher.stream.once('close', () => of.watchers.delete(watcher));
    // Whoever reads knows at once that it is open.
    watcher.stream.push(': open\n\n');
    if (known !== undefined) return;
    this.#watched.set(workspace, of);
    void this.#check(workspace, of);
  }

  async #check(workspace: string, of: Watched): Promise<void> {
    // Where the store cannot be read, it is tried again: those who watch are told nothing meanwhile.
    const text = await this.#changesOf(workspace, of).catch(() => null);
    // In parts: a text for each of two hundred would hold up all calls.
    const tell = (watcher: Watcher): void => {
      if (text !== null && of.watchers.has(watcher)) send(watcher, text(watcher));
    };
    await this.#ports.store.turns.map([...of.watchers], tell);
    if (performance.now() >= of.recheckAt) await this.#recheck(workspace, of).catch(() => undefined);
    if (of.watchers.size === 0) this.#watched.delete(workspace);
    else if (this.#watched.get(workspace) === of) setTimeout(() => void this.#check(workspace, of), CHECK_MS).unref();
  }

  /** What happened since the last look, as each of those who watch may see it. */
  async #changesOf(workspace: string, of: Watched): Promise<(watcher: Watcher) => string> {
    const { store } = this.#ports;
    if (of.after === null) {
      of.after = await this.#newest(workspace);
      return () => '';
    }
    const events = await store.ledger(workspace, of.after, MOST_EVENTS);
    const ids = [...new Set(events.flatMap(({ effectId }) => effectId ?? []))];
    if (events.length >= MOST_EVENTS || ids.length > MOST_EFFECTS) {
      of.after = await this.#newest(workspace);
      return () => 'event: more\ndata: {}\n\n';
    }
    of.after = events.at(-1)?.seq ?? of.after;
    // Few readers are shown less, and no other waits for the text that they get.
    const changed: { readonly effect: EffectRecord; readonly text: string; plain: string | null }[] = [];
    for (const id of ids) {
      const effect = await store.turns.run(() => store.effect(workspace, id));
      if (effect !== null) changed.push({ effect, text: this.#textOf(effect), plain: null });
    }
    return ({ caller }) => {
      const seen = changed.filter(({ effect }) => mayBeSeen(caller, effect.actor.agentId));
      return seen
        .map((one) => {
          if (withheldBecause(caller.principal, one.effect.action.tool) === null) return one.text;
          return (one.plain ??= this.#textOf(withoutContent(one.effect)));
        })
        .join('');
    };
  }

  async #newest(workspace: string): Promise<number> {
    return (await this.#ports.store.ledgerBefore(workspace, null, 1)).at(0)?.seq ?? 0;
  }

  #textOf(effect: EffectRecord): string {
    const { receipt: _, ...rest }: JsonObject = effectToWire(effect, {
      publicUrl: this.#ports.settings().publicUrl,
      receiptView: () => ({}),
      tool: this.#ports.catalog().tool(effect.action.tool),
      withResult: false,
      approval: null,
      now: this.#ports.store.now(),
    });
    return `event: effect\ndata: ${JSON.stringify(rest)}\n\n`;
  }

  /** Ends the streams of those who may not watch any more. */
  async #recheck(workspace: string, of: Watched): Promise<void> {
    of.recheckAt = performance.now() + RECHECK_MS;
    for (const watcher of of.watchers) {
      if (await this.#mayWatch(workspace, watcher)) send(watcher, ':\n\n');
      else dismiss(of, watcher);
    }
    // After a loss that was accepted the ledger may go on at a lower place.
    const last = await this.#newest(workspace);
    if (of.after !== null && last < of.after) of.after = last;
  }

  async #mayWatch(workspace: string, { caller, headers, isVisitor }: Watcher): Promise<boolean> {
    const principal = await this.#ports.stillValid(caller.principal.keyId);
    if ('failure' in principal || !permit(principal, 'effects.read', workspace).ok) return false;
    return !isVisitor || (await this.#ports.sessions.visitorOf(headers)) !== null;
  }
}

function dismiss({ watchers }: Watched, watcher: Watcher): void {
  watchers.delete(watcher);
  watcher.stream.push(null);
}

/** Whoever reads too slowly is cut off, and comes back for the list. */
function send({ stream }: Watcher, text: string): void {
  if (text === '' || stream.destroyed || stream.readableEnded) return;
  if (stream.readableLength > MOST_WAITING) stream.destroy();
  else stream.push(text);
}
