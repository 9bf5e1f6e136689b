import type { Route } from '../../../src/config/configuration.ts';
import { literalText, type Tree } from '../../../src/config/expand.ts';
import { headLines, type HeadChoices, idText, MOST_LINE, pathIn, policyHead, quoted, WRITE_RATE } from './head.ts';
import type { Draft, DraftBody, DraftTool } from './openapi/draft.ts';
import { RISKS, type Risk } from './openapi/risk.ts';
import { plainText } from './openapi/words.ts';
import { json } from '../../../src/cli/terminal.ts';
import { pathParams } from '../../../src/effects/model/tool.ts';
import { isTreeMap } from './openapi/params-schema.ts';
import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { HOME } from '../../../src/home.ts';

export interface InitUpstream {
  readonly id: string;
  /** Origin of the API. */
  readonly url: string;
  /** What the server of the document puts before each path, without a slash at its end; often nothing. */
  readonly base: string;
}

export interface InitChoices extends HeadChoices {
  /** The API first, then others that its document names for some operations. */
  readonly upstreams: readonly InitUpstream[];
  /** The arguments of the command that shows what a new version of the document changes; `null` without a document. */
  readonly diff: string | null;
}

/** How many left-out operations are listed. */
const MOST_NAMED = 2_000;

const MEANING: Readonly<Record<Risk, string>> = {
  low: 'writes by their method only: searches, previews, checks',
  medium: 'create and change things',
  high: 'delete, cut off, or let others in',
  critical: 'move money, or take away what much hangs on',
};

/** Text of a first `gateway.yaml`, with comments, in observe mode. */
export function gatewayFile(choices: InitChoices, draft: Draft, schema: string): string {
  const { upstreams, folder } = choices;
  const command = plainText(choices.launcher, MOST_LINE);
  const lines = [
    ...headLines(
      choices,
      schema,
      choices.diff === null
        ? []
        : [`# What a new version of the document changes: ${command} ${plainText(choices.diff, 10 * MOST_LINE)}`],
    ),
    '# observe: every call is decided and recorded, but what policy alone would stop goes through, with `observed` in',
    '# the answer. When the recorded decisions are what you want, say enforce.',
    `policies: { paths: [${quoted(pathIn(folder, 'policies'))}], mode: observe }`,
    '',
    'upstreams:',
    ...upstreams.flatMap((upstream, index) => [
      `  - id: ${idText(upstream.id)}`,
      `    url: ${quoted(upstream.url)}`,
      ...(index > 0
        ? []
        : [
            '    # A credential that the agents then no longer need to hold; it is put on every request:',
            '    # The file holds the whole value, e.g. Bearer and the token; a new value is in force without a restart.',
            `    # credentials: { header: authorization, file: ${quoted(pathIn(folder, 'data/api-credential'))} }`,
          ]),
    ]),
    '',
    ...toolLines(
      upstreams[0]?.id ?? 'api',
      draft.tools.map((tool) => withBusy(tool, upstreams.find(({ id }) => id === tool.upstream)?.url)),
    ),
    'routes:',
    ...upstreams.flatMap(({ id: upstream, url, base }) => [
      `  - upstream: ${idText(upstream)}`,
      `    prefix: /${upstream}                         # an agent's base URL is {gateway}/${upstream}${plainText(base, MOST_LINE)}`,
      '    # GET and HEAD that no rule names are judged by policy, as reads that no tool declares; everything else is refused.',
      '    undeclared: passthrough_reads',
      '    # A call that waits for approval has not happened yet. Client libraries take the default, 202, for a success.',
      '    pending_status: 409',
      ...errorLines(url),
      ...ruleLines(draft.tools.filter((tool) => tool.upstream === upstream)),
    ]),
  ];
  if (draft.leftOut.length > 0) {
    lines.push('', '# In the OpenAPI document and not declared:');
    for (const { operation, why } of draft.leftOut.slice(0, MOST_NAMED))
      lines.push(`#   ${plainText(`${operation}: ${why}`, MOST_LINE)}`);
    if (draft.leftOut.length > MOST_NAMED) lines.push(`#   and ${draft.leftOut.length - MOST_NAMED} more`);
  }
  return `${lines.join('\n')}\n`;
}

/** Families of client libraries, by the host of their API. */
const FAMILIES: Readonly<Record<string, Route['errorFormat']>> = {
  'api.stripe.com': 'stripe',
  'api.openai.com': 'openai',
  'api.anthropic.com': 'anthropic',
  'api.github.com': 'github',
  'slack.com': 'slack',
};

/** What these APIs document outside of their OpenAPI documents: statuses after which nothing was done. */
const BUSY: Readonly<Record<string, readonly number[]>> = { 'api.openai.com': [503], 'api.anthropic.com': [529] };

function withBusy(tool: DraftTool, url: string | undefined): DraftTool {
  const known = (url === undefined ? undefined : BUSY[new URL(url).hostname]) ?? [];
  return tool.kind === 'read'
    ? tool
    : { ...tool, busy: [...new Set([...tool.busy, ...known])].toSorted((a, b) => a - b) };
}

/** How refusals look. Where the client libraries are not known, plain errors, with their own status. */
function errorLines(url: string): readonly string[] {
  const family = FAMILIES[new URL(url).hostname];
  if (family !== undefined)
    return [
      '    # Refusals in the form for which the client libraries of this API throw their own errors.',
      `    error_format: ${family}`,
    ];
  return [
    '    # Clients that repeat 502 and 504 whatever the answer says (got, curl --retry, urllib3): what is final is 422 then.',
    '    # final_status: 422',
  ];
}

/** Text of a first policy set that names the real tools, grouped by how much is at stake. */
export function policyFile(choices: InitChoices, draft: Draft, schema: string): string {
  const grave = draft.tools.filter(({ risk }) => risk === 'high' || risk === 'critical');
  const lines = [
    ...policyHead(schema, '; while gateway.yaml says `mode: observe`, that is only recorded'),
    'rules:',
    '  - id: reads',
    '    description: Every agent may read what is declared',
    '    effect: allow',
    '    match: { kinds: [read] }',
    '    when: { tool.declared: true }',
    '',
    '  # Other reads pass while policy observes, with `svc-observed: denied_policy`, and are refused once gateway.yaml says',
    '  # `mode: enforce`. Declare those that you see as tools, or let all of them pass, unseen:',
    '  # - id: undeclared-reads',
    '  #   effect: allow',
    '  #   match: { kinds: [read] }',
    '  #   when: { tool.declared: false }',
    '',
    ...writeRules(choices.agent, draft.tools),
    ...WRITE_RATE,
  ];
  if (grave.length > 0)
    lines.push(
      '',
      '  - id: grave-writes',
      '    description: "Without mode: shadow, what is of high or critical risk needs a person"',
      '    effect: require_approval',
      '    mode: shadow                             # judged and counted, never in force',
      '    match:',
      '      tools:',
      ...grave.map((tool) => `        - ${quoted(tool.name)}`),
      `    approval: { approvers: { roles: [approver] }, quorum: 1, expires: 4h, summary: "\${tool.name} on \${target}" }`,
    );
  return `${lines.join('\n')}\n`;
}

/** One rule for each risk, in order of risk, so that people can read what an agent may do and take rules out. */
function writeRules(agent: string, tools: readonly DraftTool[]): readonly string[] {
  const head = (name: string, words: string): string[] => [
    `  - id: ${name}`,
    `    description: ${quoted(words)}`,
    '    effect: allow',
    '    match:',
    `      agents: { id: [${idText(agent)}] }`,
    '      kinds: [write]',
  ];
  const rules = RISKS.flatMap((risk) => {
    const names = tools.filter((tool) => tool.risk === risk).map((tool) => `        - ${quoted(tool.name)}`);
    if (names.length === 0) return [];
    const words = `${agent} may do what it does today. Risk ${risk}: ${MEANING[risk]}. Take out what it should not do`;
    return [...head(`writes-${risk}`, words), '      tools:', ...names, ''];
  });
  return rules.length > 0
    ? rules
    : [...head('writes', `${agent} may do what it does today; take out what it should not`), ''];
}

function toolLines(upstream: string, tools: readonly DraftTool[]): readonly string[] {
  if (tools.length === 0)
    return [
      '# No operation of an OpenAPI document is declared yet. A write becomes callable like this:',
      '# tools:',
      `#   - name: ${upstream}.create_order`,
      `#     upstream: ${idText(upstream)}`,
      '#     kind: write',
      '#     request: { method: POST, path: "/v1/orders", body: [sku, quantity] }',
      '#     params_schema: { type: object, required: [sku], properties: { sku: { type: string }, quantity: { type: integer } } }',
      '# and in the route below:',
      '#     rules:',
      `#       - { match: "POST /v1/orders", tool: ${upstream}.create_order, idempotency: none }`,
      '',
    ];
  const reads = plainReads(tools);
  const proposed = new Map(tools.map((tool) => [tool.name, probeProposal(tool, reads)]));
  const lines = [
    'tools:                                       # from the OpenAPI document of the API',
    ...([...proposed.values()].some((proposal) => proposal.length > 0) ? ABOUT_PROBES : []),
  ];
  const groups: readonly (Risk | null)[] = [null, ...RISKS];
  for (const risk of groups) {
    const group = tools.filter((tool) => tool.risk === risk);
    if (group.length === 0) continue;
    const count = group.length;
    const words = risk === null ? `reads (${count})` : `writes of ${risk} risk (${count}): ${MEANING[risk]}`;
    lines.push(
      '',
      `  # -- ${words}`,
      ...(risk === null
        ? []
        : ['  # The risk is a first guess, from the words of the operation: set it right where it is wrong.']),
    );
    for (const tool of group) lines.push(...entryOf(tool), ...(proposed.get(tool.name) ?? []));
  }
  lines.push('');
  return lines;
}

function bodyParts(body: DraftBody): readonly string[] {
  const type = body.type === 'json' ? [] : [`body_type: ${body.type}`];
  return body.as === 'param'
    ? [`body_as: ${body.name}`, ...type]
    : ['body: "*"', ...type, ...(body.lists === 'repeat' ? ['form_lists: repeat'] : [])];
}

function entryOf(tool: DraftTool): readonly string[] {
  const parts = [`method: ${tool.method}`, `path: ${quoted(tool.path)}`];
  if (tool.query.length > 0) parts.push(`query: [${tool.query.map(quoted).join(', ')}]`);
  const styles = Object.entries(tool.queryStyles);
  if (styles.length > 0)
    parts.push(`query_styles: { ${styles.map(([name, style]) => `${quoted(name)}: ${style}`).join(', ')} }`);
  if (tool.headers.length > 0)
    parts.push(`headers: { ${tool.headers.map(([name, header]) => `${name}: ${quoted(header)}`).join(', ')} }`);
  if (tool.body !== null) parts.push(...bodyParts(tool.body));
  return [
    `  - name: ${tool.name}`,
    `    title: ${quoted(tool.title)}`,
    `    upstream: ${idText(tool.upstream)}`,
    `    kind: ${tool.kind}`,
    ...(tool.risk === null ? [] : [`    risk: ${tool.risk}`]),
    ...(tool.tags.length === 0 ? [] : [`    tags: [${tool.tags.map(quoted).join(', ')}]`]),
    ...tool.notes.map((note) => `    # ${plainText(note, MOST_LINE)}`),
    `    request: { ${parts.join(', ')} }`,
    `    params_schema: ${schemaText(tool.schema)}`,
    ...(tool.busy.length === 0
      ? []
      : [
          `    outcomes: { failed: [${tool.busy.join(', ')}] } # "not now", as documented: nothing was done, libraries ask again`,
        ]),
    ...targetLine(tool),
  ];
}

/** `/v1/notes/{id}` gets the target `notes:{id}`. Approvers see it, and claims are taken on it. */
function targetLine({ path }: DraftTool): readonly string[] {
  const [, noun, param] = /([A-Za-z0-9_-]+)\/\{\+?(\w+)\}[^{}]*$/.exec(path) ?? [];
  return noun === undefined || param === undefined ? [] : [`    target: ${quoted(`${noun}:{${param}}`)}`];
}

function ruleLines(tools: readonly DraftTool[]): readonly string[] {
  if (tools.length === 0) return ['    rules: []'];
  const lines = [
    '    # idempotency: none lets clients work as they are. Say `required` once they send an Idempotency-Key: only then is',
    '    # a repeated write recognised as the same one.',
    '    rules:',
  ];
  for (const tool of tools) {
    const path = tool.path.replace(/\{\+(\w+)\}/g, '*$1').replace(/\{(\w+)\}/g, ':$1');
    const slashes = tool.encodedSlashes.length === 0 ? '' : `, encoded_slashes: [${tool.encodedSlashes.join(', ')}]`;
    const idempotency = tool.kind === 'write' ? ', idempotency: none' : '';
    lines.push(`      - { match: ${quoted(`${tool.method} ${path}`)}, tool: ${tool.name}${slashes}${idempotency} }`);
  }
  return lines;
}

/** Escapes references to the environment in values only: they are not expanded in keys. */
function schemaText(schema: { readonly [name: string]: Tree }): string {
  return json(
    JSON.parse(JSON.stringify(schema), (_name, value: Tree) =>
      typeof value === 'string' ? literalText(value) : value,
    ),
    0,
  );
}

/** The most members of a body that are compared. */
const MOST_COMPARED = 8;

/** What stands before the tools where any has a proposal. */
const ABOUT_PROBES: readonly string[] = [
  '  # probe: a read that shows, after an answer was lost, that what a call was to do is so: what it deletes is gone, what it',
  '  # puts is there. It does not show that this call did it, and that something is not so (yet) shows nothing at all: none of',
  '  # them concludes that a call did not happen. Take the # away where that is enough for you.',
];

/** The reads of a document that need nothing but what their path names. */
function plainReads(tools: readonly DraftTool[]): ReadonlySet<string> {
  return new Set(
    tools
      .filter(({ method, path, schema: { required } }) => {
        const names = pathParams(path);
        return (
          method === 'GET' &&
          (!Array.isArray(required) || required.every((name) => typeof name === 'string' && names.includes(name)))
        );
      })
      .map(shapeOf),
  );
}

/**
 * The probe that a document suggests for a write: the read of the same path. A line of the configuration, as a comment,
 * because it needs somebody who accepts what it shows. Only what the write leaves behind is a condition; nothing is
 * ever concluded from what is not there (yet).
 */
function probeProposal(tool: DraftTool, reads: ReadonlySet<string>): readonly string[] {
  if (tool.encodedSlashes.length > 0 || tool.path.includes('{+') || !reads.has(shapeOf(tool))) return [];
  const names = pathParams(tool.path);
  const properties = isTreeMap(tool.schema['properties']) ? Object.keys(tool.schema['properties']) : [];
  if (names.length === 0 || properties.includes('idempotency_key')) return [];
  const happened = conditionsOf(tool, properties, names);
  if (happened === null) return [];
  const request = `{ method: GET, path: ${quoted(tool.path)} }`;
  return [`    # probe: { request: ${request}, happened: { ${happened} }, accept_state_evidence: true }`];
}

function conditionsOf(tool: DraftTool, properties: readonly string[], inPath: readonly string[]): string | null {
  if (tool.method === 'DELETE') return 'http_status: { $in: [404, 410] }';
  if (tool.method !== 'PUT') return null;
  // What the read shows without a body of its own: membership, a star, a lock.
  if (tool.body === null) return 'http_status: { $in: [200, 204] }';
  const { required } = tool.schema;
  const isNeeded = (name: string): boolean => Array.isArray(required) && required.includes(name);
  const members = properties.filter((name) => !inPath.includes(name));
  const isWhole =
    tool.body.as === 'members' &&
    tool.body.type === 'json' &&
    tool.query.length === 0 &&
    tool.headers.length === 0 &&
    members.length > 0 &&
    members.length <= MOST_COMPARED &&
    members.every((name) => isNeeded(name) && /^[A-Za-z]\w*$/.test(name) && name !== 'http_status');
  // With some of the members left out, an older state could be taken for the new one.
  return isWhole ? members.map((name) => `${name}: ${quoted(`{${name}}`)}`).join(', ') : null;
}

function shapeOf({ upstream, path }: DraftTool): string {
  return `${upstream} ${path.replaceAll(/\{[^{}]*\}/g, '{}')}`;
}

/** Refuses to overwrite files, and to activate policies that belong to another configuration. */
export async function refuseToDisturb(folder: string, files: readonly string[]): Promise<void> {
  for (const file of files)
    if (existsSync(file)) throw new CommandFailure(`${file} is there already; --force overwrites it`);
  const policies = join(folder, 'policies');
  const [other] = (await readdir(policies).catch(() => [])).filter((name) => /\.ya?ml$/.test(name));
  if (other !== undefined)
    throw new CommandFailure(
      `${join(policies, other)} is there already and would be in force too; name a folder of its own, e.g. --dir my-gateway`,
    );
}

export async function makeFolders(folder: string): Promise<void> {
  await mkdir(join(folder, 'policies'), { recursive: true });
  // The folder will hold the master secret and the first key. They must not end up in version control.
  await mkdir(join(folder, 'data'), { recursive: true, mode: 0o700 });
  await writeFile(join(folder, 'data', '.gitignore'), '*\n');
}

/** The schema files of the product. Editors use them for completion and checks. */
export function schemaUrl(name: string): string {
  return new URL(`schemas/${name}.schema.json`, HOME).href;
}
