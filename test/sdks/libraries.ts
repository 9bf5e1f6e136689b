import { execFile } from 'node:child_process';
import Anthropic from '@anthropic-ai/sdk';
import { ApiException, CoreV1Api, KubeConfig, setHeaderOptions } from '@kubernetes/client-node';
import { graphql, GraphqlResponseError } from '@octokit/graphql';
import { RequestError as OctokitError } from '@octokit/request-error';
import { Octokit as RestOctokit } from '@octokit/rest';
import { LogLevel, WebClient } from '@slack/web-api';
import axios, { AxiosError } from 'axios';
import got, { HTTPError as GotError } from 'got';
import { ClientError, GraphQLClient } from 'graphql-request';
import { Octokit } from 'octokit';
import OpenAI from 'openai';
import Stripe from 'stripe';
import type { Seen } from './fake-api.ts';

/** One call of the table: what varies, whatever the library. */
export interface TableCall {
  /** Origin of the gateway, and the prefix of the library's route. */
  readonly origin: string;
  readonly prefix: string;
  readonly key: string;
  /** The case, in the param that the library's tool makes its target of. */
  readonly word: string;
  /** Another param: calls that differ in it alone are different calls. */
  readonly note: number;
  /** More bytes of the body, in a text that means nothing. */
  readonly padding?: string;
  readonly idempotencyKey: string | null;
  /** Whether the library repeats as it does by default. */
  readonly retries: boolean;
}

/** What the library's error tells a program. */
export interface Told {
  readonly code: unknown;
  readonly message: string;
  /** Of libraries that tell one; only the gateway's own answers have one here. */
  readonly requestId?: unknown;
}

/** A client library, and the API that it is made for. */
export interface Library {
  readonly name: string;
  /** Lines of the tool and of the route besides what all have. */
  readonly tool: string;
  readonly match: string;
  readonly route: string;
  /** It takes host and port only, so its route has a listener. */
  readonly listens?: true;
  call(call: TableCall): Promise<unknown>;
  /** What an error of the library's own type tells; `null` where it is not one. */
  told(error: unknown): Told | null;
  /** The word of a request that arrived at the API. */
  wordOf(seen: Seen): string;
  /** What the API answers where it did it, and where it refuses. */
  readonly done: unknown;
  readonly refused: { readonly status: number; readonly json: unknown; readonly code: unknown };
}

function noteOf({ note, padding = '' }: TableCall): string {
  return `${note}${padding}`;
}

function keyHeader({ idempotencyKey }: TableCall): Record<string, string> {
  return idempotencyKey === null ? {} : { 'idempotency-key': idempotencyKey };
}

// oxlint-disable-next-line no-explicit-any -- what an API got and libraries throw is looked into, not trusted
function parsed(text: string | Buffer): any {
  return JSON.parse(String(text));
}

/** A member of something that a library threw. */
function at(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (inner, name) => (typeof inner === 'object' && inner !== null ? Reflect.get(inner, name) : undefined),
    value,
  );
}

const openai: Library = {
  name: 'openai',
  tool: 'request: { method: POST, path: /v1/chat/completions, body: "*" }, target: "case:{model}"',
  match: 'POST /v1/chat/completions',
  route: 'error_format: openai',
  call: async (call) => {
    const openai = new OpenAI({
      apiKey: call.key,
      baseURL: `${call.origin}${call.prefix}/v1`,
      ...(call.retries ? {} : { maxRetries: 0 }),
    });
    const messages = [{ role: 'user' as const, content: noteOf(call) }];
    return openai.chat.completions.create({ model: call.word, messages }, { headers: keyHeader(call) });
  },
  told: (error) =>
    error instanceof OpenAI.APIError ? { code: error.code, message: error.message, requestId: error.requestID } : null,
  wordOf: ({ body }) => parsed(body).model,
  done: { id: 'c1', object: 'chat.completion', choices: [] },
  refused: {
    status: 400,
    json: { error: { message: 'No such model', type: 'invalid_request_error', param: 'model', code: 'model_absent' } },
    code: 'model_absent',
  },
};

const anthropic: Library = {
  name: 'anthropic',
  tool: 'request: { method: POST, path: /v1/messages, body: "*" }, target: "case:{model}"',
  match: 'POST /v1/messages',
  route: 'error_format: anthropic',
  call: async (call) => {
    const anthropic = new Anthropic({
      apiKey: call.key,
      baseURL: `${call.origin}${call.prefix}`,
      ...(call.retries ? {} : { maxRetries: 0 }),
    });
    const messages = [{ role: 'user' as const, content: noteOf(call) }];
    return anthropic.messages.create({ model: call.word, max_tokens: 10, messages }, { headers: keyHeader(call) });
  },
  told: (error) =>
    error instanceof Anthropic.APIError
      ? { code: error.errorCode, message: error.message, requestId: error.requestID }
      : null,
  wordOf: ({ body }) => parsed(body).model,
  done: { id: 'msg_1', type: 'message', role: 'assistant', content: [{ type: 'text', text: 'hello' }] },
  refused: {
    status: 400,
    json: {
      type: 'error',
      error: { type: 'invalid_request_error', message: 'No such model', details: { error_code: 'model_absent' } },
    },
    code: 'model_absent',
  },
};

const stripe: Library = {
  name: 'stripe',
  listens: true,
  tool: 'request: { method: POST, path: /v1/refunds, body: "*", body_type: form }, target: "case:{charge}", params_schema: { type: object, properties: { charge: { type: string }, amount: { type: integer }, metadata: { type: object } } }',
  match: 'POST /v1/refunds',
  route: 'error_format: stripe',
  call: async (call) => {
    const { hostname, port } = new URL(call.origin);
    const stripe = new Stripe(call.key, {
      host: hostname,
      port: Number(port),
      protocol: 'http',
      ...(call.retries ? {} : { maxNetworkRetries: 0 }),
    });
    const { idempotencyKey } = call;
    return stripe.refunds.create(
      {
        charge: call.word,
        amount: call.note,
        ...(call.padding === undefined ? {} : { metadata: { padding: call.padding } }),
      },
      idempotencyKey === null ? {} : { idempotencyKey },
    );
  },
  told: (error) =>
    error instanceof Stripe.errors.StripeError
      ? { code: error.code, message: error.message, requestId: error.requestId }
      : null,
  wordOf: ({ body }) => new URLSearchParams(String(body)).get('charge') ?? '',
  done: { id: 're_1', object: 'refund' },
  refused: {
    status: 400,
    json: { error: { type: 'invalid_request_error', code: 'charge_absent', message: 'No such charge' } },
    code: 'charge_absent',
  },
};

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

function toldByOctokit(error: unknown): Told | null {
  if (!(error instanceof OctokitError)) return null;
  return { code: at(error.response?.data, 'error', 'code'), message: error.message };
}

const github: Pick<Library, 'tool' | 'match' | 'route' | 'told' | 'wordOf' | 'done' | 'refused'> = {
  tool: 'request: { method: POST, path: "/repos/{owner}/{repo}/labels", body: "*" }, target: "case:{repo}"',
  match: 'POST /repos/:owner/:repo/labels',
  route: 'error_format: github, keys: [token]',
  told: toldByOctokit,
  wordOf: ({ url }) => url.split('/')[3] ?? '',
  done: { id: 1, name: 'bug' },
  refused: { status: 404, json: { message: 'Not Found', error: { code: 'absent' } }, code: 'absent' },
};

const rest: Library = {
  ...github,
  name: 'octokit-rest',
  call: async (call) => {
    const octokit = new RestOctokit({ auth: call.key, baseUrl: `${call.origin}${call.prefix}`, log: quiet });
    const label = { owner: 'acme', repo: call.word, name: noteOf(call) };
    return octokit.issues.createLabel({ ...label, headers: keyHeader(call) });
  },
};

const octokit: Library = {
  ...github,
  name: 'octokit',
  call: async (call) => {
    const octokit = new Octokit({
      auth: call.key,
      baseUrl: `${call.origin}${call.prefix}`,
      log: quiet,
      // It lets one write a second go out; what it repeats is another matter.
      throttle: { enabled: false },
      ...(call.retries ? {} : { retry: { enabled: false } }),
    });
    const label = { owner: 'acme', repo: call.word, name: noteOf(call) };
    return octokit.rest.issues.createLabel({ ...label, headers: keyHeader(call) });
  },
};

const slack: Library = {
  name: 'slack',
  tool: 'request: { method: POST, path: /api/chat.postMessage, body: "*", body_type: form }, target: "case:{channel}", outcomes: { body: [ { path: ok, equals: true, outcome: committed }, { path: ok, equals: false, outcome: failed } ] }',
  match: 'POST /api/chat.postMessage',
  route: 'error_format: slack',
  call: async (call) => {
    const slack = new WebClient(call.key, {
      slackApiUrl: `${call.origin}${call.prefix}/api/`,
      headers: keyHeader(call),
      ...(call.retries ? {} : { retryConfig: { retries: 0 }, rejectRateLimitedCalls: true }),
      logger: { ...quiet, setLevel() {}, setName() {}, getLevel: () => LogLevel.ERROR },
    });
    return slack.chat.postMessage({ channel: call.word, text: noteOf(call) });
  },
  told: (error) => {
    if (at(error, 'code') !== 'slack_webapi_platform_error') return null;
    return { code: at(error, 'data', 'error'), message: String(at(error, 'data', 'response_metadata', 'messages')) };
  },
  wordOf: ({ body }) => new URLSearchParams(String(body)).get('channel') ?? '',
  done: { ok: true, channel: 'C1', ts: '1.2' },
  refused: { status: 200, json: { ok: false, error: 'is_archived' }, code: 'is_archived' },
};

const graph: Library = {
  name: 'octokit-graphql',
  tool: 'request: { method: POST, path: /graphql, body: "*" }, target: "case:{operationName}", outcomes: { body: [ { path: errors.0.type, equals: NOT_FOUND, outcome: failed } ] }',
  match: 'POST /graphql',
  route: 'error_format: graphql, keys: [token]',
  call: async (call) => {
    const headers = { authorization: `token ${call.key}`, ...keyHeader(call) };
    return graphql({
      query: `mutation ${call.word} ($name: String!) { createLabel(name: $name) { id } }`,
      operationName: call.word,
      name: noteOf(call),
      baseUrl: `${call.origin}${call.prefix}`,
      headers,
    });
  },
  told: (error) => {
    if (!(error instanceof GraphqlResponseError)) return null;
    return { code: at(error.errors, '0', 'extensions', 'code'), message: error.message };
  },
  wordOf: ({ body }) => parsed(body).operationName,
  done: { data: { createLabel: { id: 'L_1' } } },
  refused: {
    status: 200,
    json: {
      data: { createLabel: null },
      errors: [{ type: 'NOT_FOUND', message: 'None', extensions: { code: 'absent' } }],
    },
    code: 'absent',
  },
};

const graphRequest: Library = {
  ...graph,
  name: 'graphql-request',
  call: async (call) => {
    const headers = { authorization: `token ${call.key}`, ...keyHeader(call) };
    const document = `mutation ${call.word} ($name: String!) { createLabel(name: $name) { id } }`;
    return new GraphQLClient(`${call.origin}${call.prefix}/graphql`, { headers }).request(document, {
      name: noteOf(call),
    });
  },
  told: (error) => {
    if (!(error instanceof ClientError)) return null;
    const [first] = error.response.errors ?? [];
    return { code: first?.extensions['code'], message: first?.message ?? '' };
  },
};

const kubernetes: Library = {
  name: 'kubernetes',
  tool: 'request: { method: POST, path: "/api/v1/namespaces/{namespace}/configmaps", body: "*" }, target: "case:{metadata.name}"',
  match: 'POST /api/v1/namespaces/:namespace/configmaps',
  route: 'error_format: kubernetes, keys: [bearer]',
  call: async (call) => {
    const config = new KubeConfig();
    config.loadFromClusterAndUser(
      // Without TLS it sends nothing unless this is said.
      { name: 'gateway', server: `${call.origin}${call.prefix}`, skipTLSVerify: true },
      { name: 'agent', token: call.key },
    );
    const body = { metadata: { name: call.word }, data: { note: noteOf(call) } };
    const api = config.makeApiClient(CoreV1Api);
    const { idempotencyKey } = call;
    return api.createNamespacedConfigMap(
      { namespace: 'default', body },
      idempotencyKey === null ? undefined : setHeaderOptions('Idempotency-Key', idempotencyKey),
    );
  },
  told: (error) => {
    if (!(error instanceof ApiException)) return null;
    const body: unknown = typeof error.body === 'string' ? parsed(error.body) : error.body;
    return { code: at(body, 'details', 'causes', '0', 'reason'), message: String(at(body, 'message')) };
  },
  wordOf: ({ body }) => parsed(body).metadata.name,
  done: { kind: 'ConfigMap', apiVersion: 'v1', metadata: { name: 'done' } },
  refused: {
    status: 422,
    json: {
      kind: 'Status',
      status: 'Failure',
      message: 'Invalid name',
      reason: 'Invalid',
      details: { causes: [{ reason: 'FieldValueInvalid' }] },
      code: 422,
    },
    code: 'FieldValueInvalid',
  },
};

/** An API that nobody wrote a library for; libraries for HTTP speak to it. */
const plain: Pick<Library, 'tool' | 'match' | 'route' | 'wordOf' | 'done' | 'refused'> = {
  tool: 'request: { method: POST, path: "/things/{thing}", body: "*" }, target: "case:{thing}"',
  match: 'POST /things/:thing',
  route: 'error_format: problem',
  wordOf: ({ url }) => url.split('/')[2] ?? '',
  done: { id: 1 },
  refused: { status: 404, json: { error: { code: 'absent' }, message: 'Not there' }, code: 'absent' },
};

function toldByBody(body: unknown): Told {
  return { code: at(body, 'error', 'code'), message: String(at(body, 'message')) };
}

function thingOf({ origin, prefix, word }: TableCall): string {
  return `${origin}${prefix}/things/${word}`;
}

function headersOf(call: TableCall): Record<string, string> {
  return { 'x-api-key': call.key, 'content-type': 'application/json', ...keyHeader(call) };
}

const throughAxios: Library = {
  ...plain,
  name: 'axios',
  call: (call) => axios.post(thingOf(call), { note: noteOf(call) }, { headers: headersOf(call) }),
  told: (error) => (error instanceof AxiosError ? toldByBody(error.response?.data) : null),
};

const throughGot: Library = {
  ...plain,
  name: 'got',
  // It repeats PUT and DELETE by their statuses, 502 and 504 among them, and looks at no header.
  tool: plain.tool.replace('POST', 'PUT'),
  match: plain.match.replace('POST', 'PUT'),
  route: `${plain.route}, final_status: 422`,
  call: async (call) =>
    got.put(thingOf(call), {
      json: { note: noteOf(call) },
      headers: headersOf(call),
      responseType: 'json',
      ...(call.retries ? {} : { retry: { limit: 0 } }),
    }),
  told: (error) => (error instanceof GotError ? toldByBody(error.response.body) : null),
};

/** `fetch` throws for no answer. This is what a program makes of one that is not `ok`. */
class NotOk extends Error {
  readonly body: unknown;
  constructor(body: unknown) {
    super('not ok');
    this.body = body;
  }
}

const throughFetch: Library = {
  ...plain,
  name: 'fetch',
  call: async (call) => {
    const body = JSON.stringify({ note: noteOf(call) });
    const answer = await fetch(thingOf(call), { method: 'POST', headers: headersOf(call), body });
    if (!answer.ok) throw new NotOk(await answer.json());
    return answer.json();
  },
  told: (error) => (error instanceof NotOk ? toldByBody(error.body) : null),
};

/** How `curl --fail-with-body` says it: 22, and the body all the same. */
const HTTP_ERROR = 22;

const curl: Library = {
  ...plain,
  name: 'curl',
  call: (call) => {
    const headers = Object.entries(headersOf(call)).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const words = ['-sS', '--fail-with-body', ...headers, '-d', JSON.stringify({ note: noteOf(call) }), thingOf(call)];
    return new Promise((resolve, reject) => {
      execFile('curl', words, (error, stdout) => {
        if (error === null) resolve(parsed(stdout));
        else reject(error.code === HTTP_ERROR ? new NotOk(parsed(stdout)) : error);
      });
    });
  },
  told: throughFetch.told,
};

export const LIBRARIES: readonly Library[] = [
  openai,
  anthropic,
  stripe,
  rest,
  octokit,
  slack,
  graph,
  graphRequest,
  kubernetes,
  throughAxios,
  throughGot,
  throughFetch,
  curl,
];
