import { ENDPOINTS, type Endpoint } from '../../src/identity/permissions.ts';
import { BY_KEY_ALONE, STEP_UP } from '../../src/identity/session-permissions.ts';

const KINDS = ['account', 'agent', 'administrative', 'profile'] as const;

/** The table as a page of the documentation (`docs/operating/permissions.md`). */
export function permissionsPage(): string {
  const lines = [
    '# What each kind of key may do',
    '',
    'This page is written from `src/identity/permissions.ts`, the table that the routes ask; a test keeps the two equal.',
    '',
    '- **workspace**: everything in its workspace. **own**: what belongs to its agent. **any**: in every workspace.',
    '- A scope: keys with a profile need it (or one of several).',
    '- A profile key that was made for one agent sees what belongs to that agent only, and decides on no request for',
    '  approval; one without a workspace sees no workspace data.',
    '- A read-only key can never do what is marked *changes*, whatever else it was given (`read_only_key`).',
    '- A kind that may not is answered `wrong_key_kind`, a missing scope `insufficient_scope`, another workspace in the',
    '  path `wrong_workspace`, all 403. On a run request the same codes come as the decision `denied_permission`.',
    '- `allowed_tools` of a key limits the tools that it can call or see (`tool_not_allowed`).',
    '- A session of the console may do what its key may, but for what only a key does: ' +
      `${[...BY_KEY_ALONE].map((id) => `\`${id}\``).join(' and ')}.`,
    '- A session that a link opened has to show the key once (`step_up_required`) before it does these: ' +
      `${Object.entries(STEP_UP)
        .map(([id, methods]) => `\`${id}\` (${methods.join(', ')})`)
        .join(', ')}.`,
    '',
    '| endpoint | what | changes | account | agent | administrative | profile |',
    '|---|---|---|---|---|---|---|',
  ];
  for (const [id, row] of Object.entries<Endpoint>(ENDPOINTS)) {
    const cells = KINDS.map((kind) => grantText(row[kind]));
    lines.push(`| \`${id}\` | ${row.does} | ${row.changes ? 'changes' : ''} | ${cells.join(' | ')} |`);
  }
  lines.push('', '## Routes', '', '| endpoint | routes |', '|---|---|');
  for (const [id, row] of Object.entries<Endpoint>(ENDPOINTS))
    lines.push(`| \`${id}\` | ${row.routes.map((route) => `\`${route}\``).join('<br>')} |`);
  return `${lines.join('\n')}\n`;
}

function grantText(grant: Endpoint[(typeof KINDS)[number]]): string {
  if (grant === undefined) return 'no';
  return typeof grant === 'string' ? grant : grant.map((scope) => `\`${scope}\``).join(' or ');
}
