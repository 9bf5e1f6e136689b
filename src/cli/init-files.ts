import { isAbsolute } from 'node:path';
import { literalText } from '../config/expand.ts';
import { type Draft, type DraftTool, plainText } from './openapi-draft.ts';

export interface InitChoices {
  /** Origin of the API. */
  readonly upstreamUrl: string;
  readonly upstream: string;
  readonly workspace: string;
  readonly agent: string;
  /** Folder of the files, as seen from where `svc` runs: `.`, `my-gateway`. Paths in them begin with it. */
  readonly folder: string;
}

/** How many left-out operations are listed, and how many characters of each. */
const MOST_NAMED = 200;
const MOST_LINE = 200;

/** Text of a first `gateway.yaml`, with comments, in observe mode. */
export function gatewayFile(choices: InitChoices, draft: Draft, schema: string): string {
  const { upstream, folder } = choices;
  const file = folder === '.' ? 'gateway.yaml' : `${plainText(folder, MOST_LINE)}/gateway.yaml`;
  const within = (name: string): string =>
    folder === '.'
      ? `./${name}`
      : isAbsolute(folder) || folder.startsWith('..')
        ? `${folder}/${name}`
        : `./${folder}/${name}`;
  const lines = [
    `# yaml-language-server: $schema=${schema}`,
    `# Written by \`svc init\`. Check it with \`svc config check ${file}\`; \`svc doctor ${file}\` looks around it too.`,
    '# Paths are relative to the folder that `svc` is started in.',
    'server: { host: 127.0.0.1, port: 8080 }',
    '# Effects, keys, budgets and receipts; back this folder up.',
    `store: { kind: embedded, path: ${quoted(within('data'))} }`,
    '',
    'users:                                       # people: owners of agents, approvers',
    '  - { id: operator }',
    '  - { id: reviewer, roles: [approver] }     # another person: nobody approves what an agent of their own asks for',
    'workspaces:',
    `  - id: ${id(choices.workspace)}`,
    '    agents:',
    `      - { id: ${id(choices.agent)}, owner: operator }`,
    '',
    '# observe: every call is decided and recorded, but what policy alone would stop goes through, with `observed` in',
    '# the answer. When the recorded decisions are what you want, say enforce.',
    `policies: { paths: [${quoted(within('policies'))}], mode: observe }`,
    '',
    'upstreams:',
    `  - id: ${id(upstream)}`,
    `    url: ${quoted(choices.upstreamUrl)}`,
    '    # A credential that the agents then no longer need to hold; it is put on every request:',
    '    # The file holds the whole value, e.g. Bearer and the token; a new value is in force without a restart.',
    `    # credentials: { header: authorization, file: ${quoted(within('data/api-credential'))} }`,
    '',
    ...toolLines(upstream, draft.tools),
    'routes:',
    `  - upstream: ${id(upstream)}`,
    `    prefix: /${upstream}                         # an agent's base URL is {gateway}/${upstream}`,
    '    # GET and HEAD that no rule names are judged by policy, as reads that no tool declares; everything else is refused.',
    '    undeclared: passthrough_reads',
    ...ruleLines(draft.tools),
  ];
  if (draft.skipped.length > 0) {
    lines.push('', '# Found in the OpenAPI document and not declared:');
    for (const one of draft.skipped.slice(0, MOST_NAMED)) lines.push(`#   ${plainText(one, MOST_LINE)}`);
    if (draft.skipped.length > MOST_NAMED) lines.push(`#   and ${draft.skipped.length - MOST_NAMED} more`);
  }
  return `${lines.join('\n')}\n`;
}

/** Text of a first policy set that names the real tools. */
export function policyFile(choices: InitChoices, draft: Draft, schema: string): string {
  const writes = draft.tools.filter((tool) => tool.kind === 'write');
  const deletes = writes.filter((tool) => tool.method === 'DELETE');
  const lines = [
    `# yaml-language-server: $schema=${schema}`,
    '# Written by `svc init`. What no rule allows is denied; while gateway.yaml says `mode: observe`, that is only recorded.',
    'apiVersion: svc-gateway/v1',
    'kind: PolicySet',
    'name: first',
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
    '  - id: writes',
    `    description: ${quoted(`${choices.agent} may do what it does today; take out what it should not`)}`,
    '    effect: allow',
    '    match:',
    `      agents: { id: [${id(choices.agent)}] }`,
    '      kinds: [write]',
    ...(writes.length > 0 ? [`      tools: [${writes.map((tool) => quoted(tool.name)).join(', ')}]`] : []),
    '',
    '  - id: write-rate',
    '    description: A loop that runs away stops here',
    '    effect: constrain',
    '    match: { kinds: [write] }',
    '    obligations:',
    '      - rate_limit: { by: [agent.id], limit: 60, per: minute }',
  ];
  if (deletes.length > 0)
    lines.push(
      '',
      '  - id: deletes',
      '    description: "Without mode: shadow, deleting needs a person"',
      '    effect: require_approval',
      '    mode: shadow                             # judged and counted, never in force',
      `    match: { tools: [${deletes.map((tool) => quoted(tool.name)).join(', ')}] }`,
      '    approval: { approvers: { roles: [approver] }, quorum: 1, expires: 4h, summary: "Delete ${target}" }',
    );
  return `${lines.join('\n')}\n`;
}

function toolLines(upstream: string, tools: readonly DraftTool[]): readonly string[] {
  if (tools.length === 0)
    return [
      '# No OpenAPI document was found, so nothing is declared yet. A write becomes callable like this:',
      '# tools:',
      `#   - name: ${upstream}.create_order`,
      `#     upstream: ${id(upstream)}`,
      '#     kind: write',
      '#     request: { method: POST, path: "/v1/orders", body: [sku, quantity] }',
      '#     params_schema: { type: object, required: [sku], properties: { sku: { type: string }, quantity: { type: integer } } }',
      '# and in the route below:',
      '#     rules:',
      `#       - { match: "POST /v1/orders", tool: ${upstream}.create_order, idempotency: none }`,
      '',
    ];
  const lines = ['tools:                                       # from the OpenAPI document of the API'];
  for (const tool of tools) {
    const parts = [`method: ${tool.method}`, `path: ${quoted(tool.path)}`];
    if (tool.query.length > 0) parts.push(`query: [${tool.query.map(quoted).join(', ')}]`);
    if (tool.body) parts.push('body: "*"');
    lines.push(
      `  - name: ${tool.name}`,
      `    title: ${quoted(tool.title)}`,
      `    upstream: ${id(upstream)}`,
      `    kind: ${tool.kind}`,
      `    request: { ${parts.join(', ')} }`,
      `    params_schema: ${JSON.stringify(paramsSchema(tool))}`,
      ...targetLine(tool),
    );
  }
  lines.push('');
  return lines;
}

/** `/v1/notes/{id}` has the target `notes:{id}`, which approvers see and claims are taken on. */
function targetLine({ path }: DraftTool): readonly string[] {
  const [, noun, param] = /([A-Za-z0-9_-]+)\/\{(\w+)\}[^{}]*$/.exec(path) ?? [];
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
    const path = tool.path.replace(/\{(\w+)\}/g, ':$1');
    const idempotency = tool.kind === 'write' ? ', idempotency: none' : '';
    lines.push(`      - { match: ${quoted(`${tool.method} ${path}`)}, tool: ${tool.name}${idempotency} }`);
  }
  return lines;
}

function paramsSchema(tool: DraftTool): object {
  const properties: Record<string, object> = {};
  // Names become keys of the YAML file. References to the environment are not expanded in keys.
  for (const name of [...tool.required, ...tool.query]) properties[name] = {};
  for (const [name, type] of Object.entries(tool.types)) properties[name] = type === '' ? {} : { type };
  return { type: 'object', ...(tool.required.length > 0 && { required: tool.required }), properties };
}

/** Quotes an id where YAML would read it as something else: `007`, `null`, `a:`. */
function id(text: string): string {
  return /^[A-Za-z][A-Za-z0-9_-]*$/.test(text) && !/^(true|false|null)$/i.test(text) ? text : quoted(text);
}

/**
 * A text as a YAML scalar that is read as the text itself: a JSON string, in which no `${…}` is a reference to the
 * environment. Texts of the OpenAPI document were written by others.
 */
function quoted(text: string): string {
  return JSON.stringify(literalText(text));
}
