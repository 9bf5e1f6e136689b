import { isUtf8 } from 'node:buffer';
import { createHash, createPublicKey, type JsonWebKey, type KeyObject, verify } from 'node:crypto';
import type { Answered, Asked, Client } from './client.ts';
import { Names } from './names.ts';
import type { CallRecord } from './record.ts';
import type { Arrived, GoldenUpstream } from './upstream.ts';

/** Calls of one segment, which is a workspace of its own: nothing in it depends on another. */
export const CALLS_OF_SEGMENT = 100;

/** Of a text that is longer than this, the length and a digest are recorded. */
const SHOWN = 6_000;

/** Refusals of one key that the gateway records one by one in a second; more are counted together. */
const REFUSALS_A_SECOND = 8;
const REFUSAL_WINDOW_MS = 1_100;

/** Headers that say something of the connection or the moment. */
const MOMENTARY = /^(date|keep-alive|connection): /;

export type KeyName =
  | 'bot'
  | 'other'
  | 'cat'
  | 'intern'
  | 'tom'
  | 'maria'
  | 'ada'
  | 'limited'
  | 'readonly'
  | 'runner'
  | 'elsewhere'
  | 'admin'
  | 'none';

export interface Answer extends Answered {
  // Scenarios read what they need; what is not there is undefined, and shows in what they send next.
  // oxlint-disable-next-line no-explicit-any
  readonly json: any;
}

export interface CallOptions {
  readonly key?: KeyName;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** Whether effect and receipt are recorded as well; a list names many, and none of them is its own. */
  readonly looks?: boolean;
}

export interface SegmentParts {
  readonly number: number;
  readonly workspace: string;
  readonly client: Client;
  readonly upstream: GoldenUpstream;
  /** The MCP server, whose tool `slow` waits for its release. */
  readonly mcp: { release(): void; readonly ran: readonly unknown[] };
  /** What arrived at the MCP server since it was asked last. */
  readonly mcpTaken: () => readonly Arrived[];
  readonly addresses: ReadonlyMap<string, string>;
  readonly random: () => number;
  readonly keys: ReadonlyMap<KeyName, string>;
  /** Whether calls are reads through the proxy. */
  readonly hasReads: boolean;
  /** Whether places in the ledger are the same in each run. */
  readonly isCounted: boolean;
  readonly take: (record: CallRecord) => void;
}

/** Makes calls and records them. */
export class Segment {
  readonly workspace: string;
  readonly upstream: GoldenUpstream;
  readonly #parts: SegmentParts;
  readonly #names: Names;
  readonly #refusals = new Map<KeyName, number[]>();
  /** Digests of what was sent under an id of the gateway's, and of the same under that of the client. */
  readonly #sent = new Map<string, string>();
  #jwks = new Map<string, KeyObject>();
  #calls = 0;
  #idems = 0;

  constructor(parts: SegmentParts) {
    this.#parts = parts;
    this.workspace = parts.workspace;
    this.upstream = parts.upstream;
    this.#names = new Names(parts.addresses, parts.isCounted);
    for (const [name, key] of parts.keys) this.#names.give(key, `key of ${name}`);
  }

  get hasReads(): boolean {
    return this.#parts.hasReads;
  }

  get isFull(): boolean {
    return this.#calls >= CALLS_OF_SEGMENT;
  }

  /** An idempotency key that nothing else in the segment has. */
  fresh(): string {
    this.#idems += 1;
    return `k-${this.#parts.number}-${this.#idems}`;
  }

  key(name: KeyName): string {
    return this.#parts.keys.get(name) ?? '';
  }

  int(below: number): number {
    return Math.floor(this.#parts.random() * below);
  }

  chance(of: number): boolean {
    return this.#parts.random() < of;
  }

  pick<T>(values: readonly [T, ...T[]]): T {
    return values[this.int(values.length)] ?? values[0];
  }

  /** A request that is not recorded, such as one that waits for a time to be over. */
  async unrecorded(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    return parsed(await this.#parts.client.ask(this.#asked(method, path, options)));
  }

  /** Below `/v1/workspaces/{ws}`. */
  at(title: string, method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    return this.call(title, method, `/v1/workspaces/${this.workspace}${path}`, { key: 'tom', ...options });
  }

  /** Runs an effect through the effects API. */
  run(title: string, body: Record<string, unknown>, options: CallOptions = {}): Promise<Answer> {
    return this.at(title, 'POST', '/effects', { key: 'bot', ...options, body });
  }

  async call(title: string, method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const asked = this.#asked(method, path, options);
    await this.#pace(options.key ?? 'bot');
    const answer = parsed(await this.#parts.client.ask(asked));
    this.#notePace(options.key ?? 'bot', answer);
    await this.#record(title, asked, answer, options.looks ?? true);
    return answer;
  }

  /** Makes two calls, the second while the upstream holds the answer to the first, and records both. */
  async whileHeld(first: () => Promise<Answer>, then: () => Promise<void>): Promise<Answer> {
    const running = first();
    // A call that is answered without having been held is recorded as that.
    await Promise.race([this.upstream.holding(1), running]);
    await then();
    this.upstream.release();
    return running;
  }

  /** Resolves when a call that begins now runs at the MCP server; it is released then. */
  async mcpHeld(call: () => Promise<Answer>): Promise<Answer> {
    const { mcp } = this.#parts;
    const before = mcp.ran.length;
    let isOver = false;
    const running = call().finally(() => {
      isOver = true;
    });
    while (mcp.ran.length === before && !isOver) await new Promise((resolve) => setTimeout(resolve, 5));
    mcp.release();
    return running;
  }

  #asked(method: string, path: string, { key = 'bot', headers = {}, body }: CallOptions): Asked {
    const secret = this.key(key);
    const bytes =
      body === undefined
        ? null
        : Buffer.isBuffer(body)
          ? body
          : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
    const typed = bytes !== null && !('content-type' in headers) ? { 'content-type': 'application/json' } : {};
    return {
      method,
      path,
      headers: { ...(secret === '' ? {} : { 'x-api-key': secret }), ...typed, ...headers },
      body: bytes,
    };
  }

  async #pace(key: KeyName): Promise<void> {
    const times = this.#refusals.get(key) ?? [];
    const oldest = times.at(-REFUSALS_A_SECOND);
    const wait = oldest === undefined ? 0 : oldest + REFUSAL_WINDOW_MS - Date.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
  }

  #notePace(key: KeyName, { status }: Answer): void {
    if (status !== 403) return;
    this.#refusals.set(key, [...(this.#refusals.get(key) ?? []).slice(-REFUSALS_A_SECOND), Date.now()]);
  }

  async #record(title: string, asked: Asked, answer: Answer, looks: boolean): Promise<void> {
    const number = this.#calls;
    this.#calls += 1;
    if (number >= CALLS_OF_SEGMENT) return;
    const called = this.#parts.mcpTaken().map((one) => this.#underOwnId(one, asked));
    const arrived = [...this.upstream.taken(), ...called];
    const id = looks ? effectIdOf(answer) : null;
    const effect = id === null ? null : await this.#look(`/effects/${id}`);
    const isCommitted = effect?.json?.effect?.state === 'committed';
    const receipt = isCommitted ? await this.#look(`/effects/${id}/receipt?disclosure=1`) : null;
    const jws: unknown = receipt?.json?.receipt?.jws ?? answer.json?.receipt?.jws;
    const payload = typeof jws === 'string' ? await this.#payloadOf(jws) : '';
    this.#names.begin(number);
    // Whoever shows a receipt shows what was signed, and where: once is enough.
    const view = typeof jws === 'string' ? viewOf(jws) : '';
    const name = (text: string): string => this.#names.of(this.#asSent(withoutReceipt(text, view)));
    // In this order: a name says where something was seen first.
    const parts = {
      request: name(
        `${asked.method} ${asked.path}\n${Object.entries(asked.headers)
          .map(([of, value]) => `${of}: ${value}\n`)
          .join('')}${shown(asked.body ?? Buffer.alloc(0))}`,
      ),
      status: `${answer.status}${answer.whole ? '' : ' (cut)'}`,
      headers: [
        ...answer.headers.filter((line) => !MOMENTARY.test(line)),
        ...answer.trailers.map((line) => `trailer ${line}`),
      ]
        .map((line) => name(this.#header(line)))
        .join('\n'),
      body: cut(name(inOrder(answer))),
      receipt: cut(name([payload, receipt === null ? '' : withoutSalts(receipt.body)].join('\n')).trim()),
      effect: effect === null ? '' : cut(name(effect.body)),
      upstream: arrived
        .map((one) =>
          name(
            `${one.method} ${one.url}\n${one.headers
              .filter((line) => !MOMENTARY.test(line))
              .map((line) => `${this.#header(line)}\n`)
              .join('')}${shown(one.body)}`,
          ),
        )
        .join('\n'),
    };
    this.#parts.take({
      number: this.#parts.number * CALLS_OF_SEGMENT + number,
      title,
      outcome: `${answer.status} ${wordOf(answer)}`,
      parts,
    });
  }

  /** What arrived of a call of a tool, under the id that its client gave it: that of the gateway is another in each run. */
  #underOwnId(one: Arrived, { body }: Asked): Arrived {
    const id = /^\{"jsonrpc":"2\.0","id":(\d{7,}),"method":"tools\/call"/.exec(one.body.toString('latin1'))?.[1];
    const own = /^\{"jsonrpc":"2\.0","id":("[^"]*"|\d+),/.exec(body?.toString('latin1') ?? '')?.[1];
    if (id === undefined || own === undefined) return one;
    const known = Buffer.from(one.body.toString('latin1').replace(id, own), 'latin1');
    const digestOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('base64url');
    this.#sent.set(digestOf(one.body), digestOf(known));
    return { ...one, body: known };
  }

  #asSent(text: string): string {
    let made = text;
    for (const [digest, known] of this.#sent) made = made.replaceAll(digest, known);
    return made;
  }

  #header(line: string): string {
    const [, name = '', value = ''] = /^([^:]+): (.*)$/s.exec(line) ?? [];
    if (name === 'x-request-id' && !value.startsWith('given-')) return `${name}: <request id>`;
    if (name === 'retry-after' && Number(value) > 5) return `${name}: <s>`;
    if (name === 'content-length') return `${name}: <length>`;
    return line;
  }

  #look(path: string): Promise<Answer> {
    return this.unrecorded('GET', `/v1/workspaces/${this.workspace}${path}`, { key: 'tom' });
  }

  /** What a receipt says, and whether its signature holds. */
  async #payloadOf(jws: string): Promise<string> {
    const [head = '', payload = '', signature = ''] = jws.split('.');
    const header: { kid?: string } = JSON.parse(Buffer.from(head, 'base64url').toString());
    const { kid = '' } = header;
    if (!this.#jwks.has(kid)) await this.#readKeys();
    const key = this.#jwks.get(kid);
    const holds =
      key !== undefined && verify(null, Buffer.from(`${head}.${payload}`), key, Buffer.from(signature, 'base64url'));
    return `${JSON.stringify({ ...header, kid: key === undefined ? 'unknown' : 'known' })} ${holds ? 'valid' : 'INVALID'}\n${Buffer.from(payload, 'base64url').toString()}`;
  }

  async #readKeys(): Promise<void> {
    const { json } = await this.unrecorded('GET', '/.well-known/jwks.json');
    const keys: (JsonWebKey & { kid: string })[] = json.keys;
    for (const jwk of keys) this.#jwks.set(jwk.kid, createPublicKey({ key: jwk, format: 'jwk' }));
  }
}

function parsed(answered: Answered): Answer {
  try {
    return { ...answered, json: JSON.parse(answered.body) };
  } catch {
    return { ...answered, json: null };
  }
}

/** The members of the payload, and the JWS: as answers show a receipt. */
function viewOf(jws: string): string {
  const payload = Buffer.from(jws.split('.')[1] ?? '', 'base64url').toString();
  return `${payload.slice(0, -1)},"jws":${JSON.stringify(jws)}}`;
}

/** In MCP an answer is a text within an answer as well. */
function withoutReceipt(text: string, view: string): string {
  if (view === '') return text;
  return text.replaceAll(view, '<the receipt>').replaceAll(JSON.stringify(view).slice(1, -1), '<the receipt>');
}

function headerOf(answer: Answered, name: string): string | null {
  const line = [...answer.trailers, ...answer.headers].find((one) => one.startsWith(`${name}: `));
  return line === undefined ? null : line.slice(name.length + 2);
}

/** The effect that an answer is about: at the doors of HTTP a header names it, in MCP the result. */
function effectIdOf(answer: Answer): string | null {
  return headerOf(answer, 'svc-effect-id') ?? /"effect_id":"(eff_\w+)"/.exec(answer.body)?.[1] ?? null;
}

function wordOf(answer: Answer): string {
  const decided = headerOf(answer, 'svc-decision') ?? /"decision":"(\w+)"/.exec(answer.body)?.[1];
  return decided ?? /"code":"?(-?\w+)/.exec(answer.body)?.[1] ?? '-';
}

/** Budgets are listed in no order: the store's. */
function inOrder({ body, json }: Answer): string {
  if (!Array.isArray(json?.budgets) || !body.startsWith('{"budgets":')) return body;
  const rows: string[] = json.budgets.map((row: unknown) => JSON.stringify(row));
  return JSON.stringify({ ...json, budgets: rows.toSorted().map((row): unknown => JSON.parse(row)) });
}

/** Salts are random; what they open is recorded. */
function withoutSalts(text: string): string {
  return text.replaceAll(/("salts":)\{[^}]*\}/g, (_, name: string) => `${name}{}`);
}

function shown(bytes: Buffer): string {
  return cut(isUtf8(bytes) ? bytes.toString() : `(bytes) ${bytes.toString('hex')}`);
}

function cut(text: string): string {
  if (text.length <= SHOWN) return text;
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return `${text.slice(0, 1_000)}… (${text.length} characters, ${digest})`;
}
