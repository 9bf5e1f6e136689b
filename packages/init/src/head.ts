import { isAbsolute, join } from 'node:path';
import { literalText } from '../../../src/config/expand.ts';
import { plainText } from './openapi/words.ts';

/** What every configuration that `svc init` writes begins with. */
export interface HeadChoices {
  readonly workspace: string;
  readonly agent: string;
  /** Folder of the files, relative to where `svc` runs: `.`, `my-gateway`. Paths in the files start with it. */
  readonly folder: string;
  /** How `svc` is called here: `npx svc`, or the path of the launcher. */
  readonly launcher: string;
}

/** How many characters of a text of others stand in a comment. */
export const MOST_LINE = 200;

/** The lines of `gateway.yaml` up to the policies. @param remarks comments that follow the first ones */
export function headLines(choices: HeadChoices, schema: string, remarks: readonly string[]): readonly string[] {
  const { folder, workspace, agent } = choices;
  const file = plainText(join(folder, 'gateway.yaml'), MOST_LINE);
  const command = plainText(choices.launcher, MOST_LINE);
  return [
    `# yaml-language-server: $schema=${schema}`,
    `# Written by \`svc init\`. Check it with \`${command} config check ${file}\`; \`${command} doctor ${file}\` looks around it too.`,
    ...remarks,
    '# Paths are relative to the folder that `svc` is started in.',
    'server: { host: 127.0.0.1, port: 8080 }',
    '# Effects, keys, budgets and receipts; back this folder up.',
    `store: { kind: embedded, path: ${quoted(pathIn(folder, 'data'))} }`,
    'receipts: { params: each }                   # one param of a call can be disclosed while the others stay closed',
    '',
    'users:                                       # people: owners of agents, approvers',
    '  - { id: operator }',
    '  - { id: reviewer, roles: [approver] }     # another person: nobody approves what an agent of their own asks for',
    'workspaces:',
    `  - id: ${idText(workspace)}`,
    '    agents:',
    `      - { id: ${idText(agent)}, owner: operator }`,
    '',
  ];
}

/** A file of the configuration, as its own text names it. */
export function pathIn(folder: string, name: string): string {
  if (folder === '.') return `./${name}`;
  return isAbsolute(folder) || folder.startsWith('..') ? `${folder}/${name}` : `./${folder}/${name}`;
}

/** Quotes an id if YAML would read it as something else: `007`, `null`, `a:`. */
export function idText(text: string): string {
  return /^[A-Za-z][A-Za-z0-9_-]*$/.test(text) && !/^(true|false|null)$/i.test(text) ? text : quoted(text);
}

/**
 * A text as a YAML scalar that YAML reads as exactly this text: a JSON string in which no `${…}` refers to the
 * environment. Other people wrote the texts of documents and of servers.
 */
export function quoted(text: string): string {
  return JSON.stringify(literalText(text));
}

/** The lines of a first policy set up to its members. @param remark what else is to be known of what is denied */
export function policyHead(schema: string, remark: string): readonly string[] {
  return [
    `# yaml-language-server: $schema=${schema}`,
    `# Written by \`svc init\`. What no rule allows is denied${remark}.`,
    'apiVersion: svc-gateway/v1',
    'kind: PolicySet',
    'name: first',
  ];
}

/** The rule of every first policy set that stops a loop. */
export const WRITE_RATE: readonly string[] = [
  '  - id: write-rate',
  '    description: A loop that runs away stops here',
  '    effect: constrain',
  '    match: { kinds: [write] }',
  '    obligations:',
  '      - rate_limit: { by: [agent.id], limit: 60, per: minute }',
];
