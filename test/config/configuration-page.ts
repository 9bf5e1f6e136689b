import {
  CREDENTIAL_HEADERS,
  DROPPED_HEADERS,
  HEADER_PLACEHOLDERS,
  NEVER_HEADERS,
  NOT_GOVERNED_HEADERS,
  VOLATILE_HEADERS,
} from '../../src/effects/run/header-names.ts';
import { isJsonObject, type Json, type JsonObject } from '../../src/json/value.ts';
import { GATEWAY_FILE } from '../../src/config/schema.ts';

const INTRODUCTION = `# Configuration

The gateway reads one file, \`gateway.yaml\`. Two to begin with are [\`config/minimal.yaml\`](../../config/minimal.yaml)
and [\`config/demo.yaml\`](../../config/demo.yaml). \`npx svc config check FILE\` finds all faults at once, each with line,
column and caret; with \`--strict\`, warnings are findings too, and it exits 1. With the first line

\`\`\`yaml
# yaml-language-server: $schema=../schemas/gateway.schema.json
\`\`\`

editors complete and check while you write (\`schemas/gateway.schema.json\`).

- **Every field has to be known.** A misspelt one is an error, never ignored. What is planned and not there yet says so.
- **Environment.** \`\${NAME}\` in a value is replaced by the variable; \`\${NAME:-default}\` has a default; \`$\${\` is a
  literal \`\${\`. A missing or empty variable without a default is an error with its line. Inside \`[ ]\` and \`{ }\` such a
  value has to be quoted. Numbers and booleans may come from variables too.
- **Secrets** stand in the environment. Keys of this gateway, private keys, tokens and keys of known forms in the file are
  refused, other literal credentials are warned of; neither is ever shown.
- **Durations** are \`250ms\`, \`5s\`, \`10m\`, \`4h\`, \`30d\`; **sizes** \`512B\`, \`64KiB\`, \`1MiB\`. **Paths** are relative
  to the working directory.
- **Reload.** The gateway reads the file again when its content, or that of a policy, has changed and nothing has moved for
  100 ms. A file with faults leaves the last good one in force and is told in the log. What cannot change while running
  (\`server.host\`, \`server.port\`, \`server.admin_port\`, \`server.tls\` (with or without), \`routes.listen\`, \`policies.second_person\`,
  \`store\`, \`secrets\`, \`receipts\`, \`retention\`, \`limits.body\`, \`limits.connections\`, \`telemetry.log_level\`, \`telemetry.access_log\`)
  stays as it was until the next start, and the log says which.
- **YAML.** Files are YAML 1.2, one document. What YAML would read otherwise than it looks is an error: an unquoted \`*\`
  (an alias), \`1_000\` and \`010\`, numbers beyond 2^53-1, keys given twice, tags, anchors, merge keys.

## Headers

Headers of a request go on to the upstream, end to end, unless a rule keeps them back. \`headers\` of an upstream and of a
route (both apply; what the route sets wins) has these rules:

- \`forward\`: goes on though it would not by itself. \`drop\`: stays here; \`forward\` is stronger, so that \`drop: ["*"]\`
  makes an allow-list of it. \`set\`: the gateway sets it, whatever the caller sends; values may have
  ${HEADER_PLACEHOLDERS.map((name) => `\`{${name}}\``).join(', ')}.
- **What goes on is a fact for policies**, \`request.headers.<name>\` in lower case, and part of the action: the same key with
  another \`Stripe-Account\` is an \`idempotency_conflict\`. What a retry may change is volatile, no part of the action, and can
  be added to with \`volatile\`: ${listed(VOLATILE_HEADERS)}. \`Content-Type\` counts where it is not the usual one of its kind.
- **Never sent on**: ${listed(NEVER_HEADERS)}, and what \`Connection\` names (a 400).
- **Stays here unless \`forward\` names it**: ${listed(DROPPED_HEADERS)}.
- **Credentials of callers** go on only to upstreams without \`credentials\`; no rule sees them, and they are no part of the
  action: ${listed(CREDENTIAL_HEADERS)}. Of cookies, the gateway's own
  (console, approver's page) go to no upstream, whatever \`forward\` names.
- **Calls that are governed** are sent without ${listed(NOT_GOVERNED_HEADERS)}: the gateway looks into their answers.
- A name with \`_\` is refused unless \`forward\` or \`drop\` has it, because some servers read it as \`-\`. \`X-Request-Id\` is
  kept, or made.
- The effects API takes the same headers in \`headers\` of its body; the rules are those of the upstream.

Limits that cannot be set are in [limits.md](limits.md). This page is made from the schema that checks the file.
`;

/** Renders `docs/operating/configuration.md` from the schema: every field with type, default and meaning. */
export function configurationMarkdown(): string {
  const schema: Json = JSON.parse(JSON.stringify(GATEWAY_FILE));
  const sections = isJsonObject(schema) ? fieldsOf(schema) : [];
  const parts = sections.map(([name, field]) => {
    if (isLater(field)) return `## \`${name}\`\n\n${text(field['description'])}\n`;
    const rows = rowsOf(name, field);
    const lead = text(field['description']);
    const table = `| field | value | default | meaning |\n|---|---|---|---|\n${rows.join('\n')}`;
    return `## \`${name}\`\n\n${lead}\n\n${table}\n`;
  });
  return `${INTRODUCTION}\n${parts.join('\n')}`;
}

function listed(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(' ');
}

function fieldsOf(schema: JsonObject): [string, JsonObject][] {
  const fields = schema['properties'];
  if (!isJsonObject(fields)) return [];
  return Object.entries(fields).flatMap(([name, field]): [string, JsonObject][] =>
    isJsonObject(field) ? [[name, field]] : [],
  );
}

/** One row for each field below an object, by its path, for example `tools[].request.path`. */
function rowsOf(path: string, schema: JsonObject): string[] {
  return inner(path, schema).flatMap(([at, parent]) =>
    fieldsOf(parent).flatMap(([name, field]) => {
      const where = `${at}.${name}`;
      const meaning = text(field['description']).replaceAll('|', '\\|');
      if (isLater(field)) return [`| \`${where}\` | | | ${meaning} |`];
      const isRequired = requiredIn(parent, name) && field['default'] === undefined;
      const value = typeOf(field).replaceAll('|', '\\|');
      const row = `| \`${where}\` | ${value} | ${isRequired ? '**required**' : defaultOf(field)} | ${meaning} |`;
      return [row, ...rowsOf(where, field)];
    }),
  );
}

function requiredIn(schema: JsonObject, name: string): boolean {
  return Array.isArray(schema['required']) && schema['required'].includes(name);
}

/** The objects inside a schema: itself, the items of a list, the values of a map, the branches of a union. */
function inner(path: string, schema: JsonObject): [string, JsonObject][] {
  const found: [string, JsonObject][] = [];
  if (isJsonObject(schema['properties'])) found.push([path, schema]);
  if (isJsonObject(schema['items'])) found.push(...inner(`${path}[]`, schema['items']));
  if (isJsonObject(schema['patternProperties']))
    for (const value of Object.values(schema['patternProperties']))
      if (isJsonObject(value)) found.push(...inner(`${path}.<name>`, value));
  for (const branch of Array.isArray(schema['anyOf']) ? schema['anyOf'] : [])
    if (isJsonObject(branch)) found.push(...inner(path, branch));
  return found;
}

function isLater(schema: JsonObject): boolean {
  return schema['x-later'] !== undefined;
}

function typeOf(schema: JsonObject): string {
  if (Array.isArray(schema['enum'])) return schema['enum'].map((word) => `\`${String(word)}\``).join(', ');
  if (schema['const'] !== undefined) return `\`${JSON.stringify(schema['const'])}\``;
  if (Array.isArray(schema['anyOf'])) return text(schema['x-expected']) || 'any of several forms';
  const { type } = schema;
  if (type === 'array') return isJsonObject(schema['items']) ? `list of ${typeOf(schema['items'])}` : 'list';
  if (type === 'object') return 'mapping';
  const expected = text(schema['x-expected']);
  if (schema['x-duration'] !== undefined)
    return bounded('duration', schema['x-duration']) + (/, or \w+$/.exec(expected)?.[0] ?? '');
  if (schema['x-size'] !== undefined) return bounded('size', schema['x-size']);
  if (type === 'integer') return `integer, ${Number(schema['minimum'])} to ${Number(schema['maximum'])}`;
  if (type === 'boolean') return '`true`, `false`';
  if (Array.isArray(type)) return type.join(', ');
  return type === undefined ? 'any value' : expected.replace('a duration such as 30d', 'duration') || 'text';
}

function bounded(word: string, bounds: Json | undefined): string {
  return isJsonObject(bounds) ? `${word}, ${text(bounds['min'])} to ${text(bounds['max'])}` : word;
}

function defaultOf(schema: JsonObject): string {
  const value = schema['default'];
  if (value === undefined) return '';
  if (Array.isArray(value) && value.length === 0) return 'none';
  if (isJsonObject(value)) return '';
  return typeof value === 'string' ? (value === '' ? '' : `\`${value}\``) : `\`${JSON.stringify(value)}\``;
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}
