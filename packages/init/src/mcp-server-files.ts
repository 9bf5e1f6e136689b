import { join } from 'node:path';
import { headLines, type HeadChoices, idText, MOST_LINE, pathIn, policyHead, quoted, WRITE_RATE } from './head.ts';
import { type GroupedTool, TOOL_GROUPS, type ToolGroup } from './tool-groups.ts';
import { plainText } from './openapi/words.ts';

export type McpServer =
  | {
      readonly kind: 'program';
      readonly command: readonly string[];
      /** Names of variables that it gets. */
      readonly env: readonly string[];
    }
  | {
      readonly kind: 'address';
      readonly url: string;
      /** The header with its key, and the variable that holds the key; `null` where it wants none. */
      readonly credential: { readonly header: string; readonly variable: string } | null;
    };

export interface McpChoices extends HeadChoices {
  readonly upstream: string;
  readonly server: McpServer;
}

/** A tool that cannot be offered, and why. */
export interface UnusableTool {
  readonly name: string;
  readonly why: string;
}

/** Where the pins of an upstream are, within the folder of the configuration. */
export function lockFileIn(upstream: string): string {
  return `mcp/${upstream}.lock.json`;
}

export function reachLines(server: McpServer): readonly string[] {
  if (server.kind === 'program')
    return [
      '    mcp:',
      `      command: [${server.command.map(quoted).join(', ')}]`,
      `      env: [${server.env.join(', ')}]`,
    ];
  const { url, credential } = server;
  return [
    ...(credential === null
      ? []
      : [`    credentials: { header: ${idText(credential.header)}, value: ${credentialText(credential)} }`]),
    '    mcp:',
    `      url: ${quoted(url)}`,
  ];
}

/** The one value in which a reference to the environment is meant. */
function credentialText({ header, variable }: { readonly header: string; readonly variable: string }): string {
  return JSON.stringify(`${header.toLowerCase() === 'authorization' ? 'Bearer ' : ''}\${${variable}}`);
}

const MEANING: Readonly<Record<ToolGroup, (count: number) => string>> = {
  reads: (count) =>
    `${count} that only ${count === 1 ? 'reads' : 'read'}: never held back as ${count === 1 ? 'a repetition' : 'repetitions'}`,
  writes: (count) =>
    `${count} that ${count === 1 ? 'writes' : 'write'}, and ${count === 1 ? 'destroys' : 'destroy'} nothing`,
  destructive: (count) => `${count} that may change or remove what is there, move money, or let others in`,
};

/** Text of a first `gateway.yaml` with one MCP server. */
export function mcpGatewayFile(
  choices: McpChoices,
  tools: readonly GroupedTool[],
  unusable: readonly UnusableTool[],
  schema: string,
): string {
  const { folder, upstream, server } = choices;
  const command = plainText(choices.launcher, MOST_LINE);
  const file = plainText(join(folder, 'gateway.yaml'), MOST_LINE);
  const lines = [
    ...headLines(choices, schema, [
      `# What the server has changed since: \`${command} tools diff --config ${file} --upstream ${upstream}\`; \`tools approve\` takes it over.`,
    ]),
    '# enforce: policy decides. To see first what it would stop, say observe: then calls go through, and the decision says',
    '# what policy would have done.',
    `policies: { paths: [${quoted(pathIn(folder, 'policies'))}], mode: enforce }`,
    '',
    'upstreams:',
    `  - id: ${idText(upstream)}                              # agents reach it at {gateway}/mcp/${upstream}`,
    ...remarksOn(server, folder),
    ...reachLines(server),
    '      # The tools as they were when `svc init` ran. Descriptions and schemas reach the model, so read them. Only these',
    '      # can be called, and only as long as the server says the same of them.',
    `      pins: ${quoted(pathIn(folder, lockFileIn(upstream)))}`,
    '      # What the tools do is a first guess, from what the server says of them and from their names: set it right',
    '      # where it is wrong. A write runs once under its idempotency key; without one, the same call again within two',
    '      # minutes is a repetition, and does not run; repeat_window: 0s where each call is meant, as its name says of clicks',
    '      # and toggles. After an error of the tool (isError) nobody knows whether it wrote; is_error: failed where it did',
    '      # not, or may be repeated: guessed where the server says idempotentHint, or the name that it reads.',
    '      tools:',
    ...TOOL_GROUPS.flatMap((group) => groupLines(group, tools)),
  ];
  if (unusable.length > 0) {
    lines.push('', '# Listed by the server, and not pinned, so nobody can call them:');
    for (const { name, why } of unusable) lines.push(`#   ${plainText(`${name}: ${why}`, MOST_LINE)}`);
  }
  return `${lines.join('\n')}\n`;
}

/** What a reader has to know of how the server is reached. */
function remarksOn(server: McpServer, folder: string): readonly string[] {
  if (server.kind === 'address')
    return server.credential === null
      ? [
          '    # A key that the server wants; agents never see it:',
          `    # credentials: { header: authorization, file: ${quoted(pathIn(folder, 'data/mcp-credential'))} }`,
        ]
      : ['    # The key of the server; agents never see it. The variable has to be set where the gateway is started.'];
  const fetches = /(?:^|\/)(?:npx|uvx|bunx|pnpx)$/.test(server.command[0] ?? '');
  return [
    '    # Runs on this machine, once for each session. It gets the variables that env names, and no others.',
    ...(fetches
      ? [
          '    # What stands here without a version may be a newer one tomorrow: name the one that you looked at, NAME@1.2.3.',
        ]
      : []),
  ];
}

function groupLines(group: ToolGroup, tools: readonly GroupedTool[]): readonly string[] {
  const own = tools.filter((tool) => tool.group === group);
  if (own.length === 0) return [];
  return [
    `        # -- ${MEANING[group](own.length)}`,
    ...own.map(({ name, risk, failsCleanly, isMeantEachTime, doubt }) => {
      const more = [...(failsCleanly ? ['is_error: failed'] : []), ...(isMeantEachTime ? ['repeat_window: 0s'] : [])];
      const settings = risk === null ? ['kind: read'] : [`risk: ${risk}`, ...more];
      const entry = `        - { name: ${idText(name)}, ${settings.join(', ')} }`;
      return doubt === null ? entry : `${entry}   # ${doubt}`;
    }),
  ];
}

/** Text of a first policy set: reads pass, writes pass at a rate, what may destroy something needs a person. */
export function mcpPolicyFile(choices: McpChoices, tools: readonly GroupedTool[], schema: string): string {
  const { agent, upstream } = choices;
  const toolsOf = (group: ToolGroup): readonly string[] =>
    tools
      .filter((tool) => tool.group === group)
      .map(({ name, title }) => {
        const entry = `        - ${quoted(`${upstream}.${name}`)}`;
        return title === null ? entry : `${entry}   # ${title}`;
      });
  const lines = [
    ...policyHead(schema, ''),
    '',
    '# A budget for writes, with the obligation of the same name below:',
    '# budgets: { writes-day: { unit: call, by: [agent.id], per: day, limit: 500 } }',
    '',
    'rules:',
    ...rule('reads', `Every agent may use what only reads`, 'allow', [], toolsOf('reads')),
    ...rule('writes', `${agent} may write`, 'allow', [`agents: { id: [${idText(agent)}] }`], toolsOf('writes')),
    ...rule(
      'destructive',
      `What may destroy something, move money or let others in needs a person each time`,
      'require_approval',
      [`agents: { id: [${idText(agent)}] }`],
      toolsOf('destructive'),
      [`    approval: { approvers: { roles: [approver] }, quorum: 1, expires: 4h }`],
    ),
    ...WRITE_RATE,
    '      # - budget: { use: writes-day, amount: 1 }',
    '      # One write at a time to each thing, by the argument that names it:',
    '      # - claim: { on: "${tool.name}:${params.ID}", hold: call }',
    '',
    '  # Resources and prompts of the server are refused until a rule allows them:',
    '  # - id: resources',
    '  #   effect: allow',
    `  #   match: { tools: ["${upstream}.(resources/read)", "${upstream}.(prompts/get)"] }`,
  ];
  return `${lines.join('\n')}\n`;
}

function rule(
  name: string,
  words: string,
  effect: string,
  match: readonly string[],
  tools: readonly string[],
  more: readonly string[] = [],
): readonly string[] {
  if (tools.length === 0) return [];
  return [
    `  - id: ${name}`,
    `    description: ${quoted(words)}`,
    `    effect: ${effect}`,
    '    match:',
    ...match.map((line) => `      ${line}`),
    '      tools:',
    ...tools,
    ...more,
    '',
  ];
}
