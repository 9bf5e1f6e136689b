import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Approval, Json } from '@svc-gateway/client';
import { printable } from '../diagnostics/render.ts';
import { toMilliseconds } from './pauses.ts';
import { CommandFailure } from './ports.ts';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { inShort, json, type Terminal, styled, table, wire } from './terminal.ts';

interface ListOptions extends GatewayAccess {
  readonly status: Approval['status'];
  readonly limit: number;
  readonly cursor?: string;
}

interface DecideOptions extends GatewayAccess {
  readonly comment?: string;
  readonly digest?: string;
  readonly set?: Readonly<Record<string, string | number | boolean>>;
  readonly allowNext?: number;
  readonly allowFor?: number;
}

/** Collects `--set name=value`. Numbers, true and false are what they look like; a text that looks so is in quotes. */
function setParam(
  text: string,
  before: Readonly<Record<string, string | number | boolean>> = {},
): Readonly<Record<string, string | number | boolean>> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('write name=value.');
  return { ...before, [text.slice(0, at)]: scalarOf(text.slice(at + 1)) };
}

function scalarOf(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  if (/^-?\d+(\.\d+)?$/.test(text)) return Number(text);
  return /^".*"$/.test(text) ? text.slice(1, -1) : text;
}

/** `svc approvals list|show|approve|reject`. */
export function addApprovals(program: Command, { terminal }: CliContext): void {
  const approvals = program.command('approvals').description('calls that wait for a person');

  talksToGateway(approvals.command('list').description('requests for approval'))
    .addOption(
      new Option('--status <status>', 'only these')
        .choices(['pending', 'granted', 'rejected', 'expired', 'used'])
        .default('pending'),
    )
    .option('--limit <n>', 'at most so many', toCount(200), 50)
    .option('--cursor <cursor>', 'go on where the last page ended')
    .action(async (options: ListOptions) => {
      const { status, limit, cursor } = options;
      const svc = await connect(options);
      const page = await svc.approvals.list({ status, limit, ...(cursor && { cursor }) });
      if (options.json) return terminal.out(json(wire(page)));
      const { approvals: found, nextCursor } = page;
      if (found.length === 0) terminal.out(nextCursor === null ? 'None.' : 'None here.');
      const rows = found.map((one) => [
        one.id,
        one.tool,
        one.target,
        one.status,
        one.expiresAt,
        inShort(words(one['summary'])),
      ]);
      if (found.length > 0) terminal.out(table(['approval', 'tool', 'target', 'status', 'expires', 'summary'], rows));
      if (nextCursor !== null) terminal.out(`More: --cursor ${nextCursor}`);
    });

  talksToGateway(approvals.command('show').description('one request: what is asked, by whom, who may decide'))
    .argument('<id>', 'approval id')
    .action(async (id: string, options: GatewayAccess) => {
      const svc = await connect(options);
      const approval = await svc.approvals.get(id);
      if (options.json) return terminal.out(json(wire(approval)));
      showApproval(terminal, approval);
    });

  for (const verb of ['approve', 'reject'] as const) addVote(approvals, verb, terminal);
}

function addVote(approvals: Command, verb: 'approve' | 'reject', terminal: Terminal): void {
  const command = talksToGateway(
    approvals
      .command(verb)
      .description(`${verb} one, which svc approvals show shows; needs an account key of another user`),
  )
    .argument('<id>', 'approval id')
    .option('--comment <text>', 'kept with the vote; told to the agent that is rejected')
    .option('--digest <digest>', 'of the request as it was shown: if another is asked now, nothing is decided');
  if (verb === 'approve')
    command
      .option('--set <param=value>', 'approve with this param changed; may be repeated', setParam)
      .option('--allow-next <n>', 'also allow the next n calls alike, where the policy lets', toCount(100))
      .option('--allow-for <duration>', 'for so long, e.g. 1h; as long as the policy lets if absent', toMilliseconds);
  command.action(async (id: string, options: DecideOptions) => {
    const svc = await connect(options);
    const { comment, digest, set, allowNext: times, allowFor } = options;
    if (allowFor !== undefined && times === undefined) throw new CommandFailure('--allow-for needs --allow-next');
    const until = allowFor === undefined ? undefined : new Date(Date.now() + allowFor).toISOString();
    const allowAlike = times === undefined ? undefined : { times, ...(until !== undefined && { until }) };
    const vote = { ...(comment !== undefined && { comment }), ...(digest !== undefined && { digest }) };
    const answer =
      verb === 'reject'
        ? await svc.approvals.reject(id, vote)
        : await svc.approvals.approve(id, {
            ...vote,
            ...(set !== undefined && { changes: set }),
            ...(allowAlike !== undefined && { allowAlike }),
          });
    if (options.json) return terminal.out(json(wire(answer)));
    const { became, effect, allowanceId } = answer;
    terminal.out(`${printable(became.message)} The effect ${effect.effectId} is ${effect.state}.`);
    if (allowanceId !== undefined)
      terminal.out(`The next calls alike are let in without asking: ${allowanceId}. See svc allowances list.`);
  });
}

function showApproval(terminal: Terminal, approval: Approval): void {
  const lines: readonly (readonly [string, string])[] = [
    ['approval', approval.id],
    ['status', `${approval.status}, ${words(approval['approvals'])} of ${words(approval['quorum'])} approvals`],
    ['asked', words(approval['summary'])],
    ['tool', approval.tool],
    ['target', approval.target],
    ['sent to', sentTo(approval['action'])],
    ['by', askedBy(approval['requestedBy'])],
    ['made', approval.createdAt],
    ['expires', approval.expiresAt],
    ['effect', approval.effectId],
    ...stoppedLine(approval),
    ...beyondLines(approval),
    ...changeLines(approval),
    ['digest', words(approval['digest'])],
  ];
  for (const [name, value] of lines) terminal.out(`${name.padEnd(9)} ${styled(terminal, 'bold', value)}`);
  showParams(terminal, approval);
  const { requirements, votes, costs, why } = approval;
  if (list(costs).length > 0) {
    terminal.out(`\n${styled(terminal, 'bold', 'What it costs')}`);
    const cells = ['budget', 'amount', 'unit', 'limit', 'spent', 'held'] as const;
    terminal.out(
      table(
        cells,
        list(costs).map((cost) => cells.map((cell) => words(member(cost, cell)))),
      ),
    );
  }
  terminal.out(`\n${styled(terminal, 'bold', 'Why somebody is asked')}`);
  const unknown = (one: Json): string => list(member(one, 'unknown')).map(words).join(', ');
  terminal.out(
    table(
      ['rule', 'what it is for', 'could not judge'],
      list(why).map((one) => [words(member(one, 'rule')), words(member(one, 'description')), unknown(one)]),
    ),
  );
  terminal.out(`\n${styled(terminal, 'bold', 'Who may decide')}`);
  terminal.out(
    table(
      ['rule', 'roles', 'users', 'agreed', 'others may, too'],
      list(requirements).map((one) => {
        const approvers = member(one, 'approvers');
        const named = (group: string, of = approvers): string => list(member(of, group)).map(words).join(', ');
        const escalates = member(one, 'escalates');
        const to = member(escalates, 'to');
        const others = [named('roles', to), named('users', to)].filter((part) => part !== '').join(', ');
        const later = others === '' ? '' : `from ${words(member(escalates, 'at'))}: ${others}`;
        const agreed = `${words(member(one, 'approvals'))} of ${words(member(one, 'quorum'))}`;
        return [words(member(one, 'rule')), named('roles'), named('users'), agreed, later];
      }),
    ),
  );
  if (list(votes).length === 0) return;
  terminal.out(`\n${styled(terminal, 'bold', 'Votes')}`);
  const cells = ['at', 'user', 'verdict', 'comment'] as const;
  terminal.out(
    table(
      cells,
      list(votes).map((vote) => cells.map((cell) => words(member(vote, cell)))),
    ),
  );
}

/** Every param on its own line. Characters that would control a terminal are escaped. */
function showParams(terminal: Terminal, approval: Approval): void {
  const { params } = approval;
  terminal.out(`\n${styled(terminal, 'bold', 'Params')}`);
  if (typeof params !== 'object' || params === null || Array.isArray(params))
    return terminal.out(`(${printable(words(approval['paramsOmitted']))})`);
  const rows = Object.entries(params).map(([name, value]) => [name, JSON.stringify(value)]);
  terminal.out(rows.length === 0 ? '(none)' : table(['name', 'value'], rows));
  if (approval['paramsTruncated'] === true) terminal.out('Some are cut: they are longer than is shown here.');
}

function sentTo(action: Json | undefined): string {
  const [upstream = '', method = '', path = ''] = ['upstream', 'method', 'path'].map((name) =>
    words(member(action, name)),
  );
  return `${upstream} ${method} ${path}`.trim();
}

/** Why an approved call is not sent yet, or never will be. */
function stoppedLine(approval: Approval): readonly (readonly [string, string])[] {
  const message = words(member(approval['stopped'], 'message'));
  return message === '' ? [] : [['stopped', message]];
}

/** The limits that the call would go beyond; what is left of them stands with what it costs. */
function beyondLines(approval: Approval): readonly (readonly [string, string])[] {
  return list(approval['requirements']).flatMap((one) => {
    const limit = words(member(one, 'beyond'));
    return limit === '' ? [] : [['beyond', `the limit of ${limit.replace(':', ' ')}`] as const];
  });
}

/** What an approver changed, and what one may change. */
function changeLines(approval: Approval): readonly (readonly [string, string])[] {
  const names = list(member(approval['changed'], 'params')).map(words).join(', ');
  const asked = approval['askedParams'] === undefined ? '' : `, asked were ${JSON.stringify(approval['askedParams'])}`;
  const editable = list(approval['requirements']).flatMap((one) => {
    const named = member(one, 'editable');
    return named === undefined ? [] : [JSON.stringify(named)];
  });
  return [
    ...(names === '' ? [] : [['changed', `${names} by ${words(member(approval['changed'], 'by'))}${asked}`] as const]),
    ...editable.map((bounds) => ['may set', bounds] as const),
    ...alikeLine(approval),
  ];
}

/** What may be allowed ahead with an approval, and what is alike. */
function alikeLine(approval: Approval): readonly (readonly [string, string])[] {
  const { allowAlike: may } = approval;
  if (may === undefined) return [];
  const names = Object.keys(may.varies);
  const but = names.length === 0 ? '' : `, but for ${JSON.stringify(may.varies)}`;
  const hours = `for ${may.forS / 60} minutes at most`;
  return [['may allow', `the next ${may.times} like it, ${hours}: same agent, tool, target and params${but}`]];
}

/** Who asked. None of the people named here may decide. */
function askedBy(of: Json | undefined): string {
  const parts = [
    ['agent', 'agentId'],
    ['owner', 'agentOwner'],
    ['user of the key', 'user'],
  ] as const;
  return parts
    .map(([what, name]) => [what, words(member(of, name))] as const)
    .filter(([, word]) => word !== '')
    .map((part) => part.join(' '))
    .join(', ');
}

function member(of: Json | undefined, name: string): Json | undefined {
  return typeof of === 'object' && of !== null && !Array.isArray(of)
    ? Object.entries(of).find(([key]) => key === name)?.[1]
    : undefined;
}

function list(of: Json | undefined): readonly Json[] {
  return Array.isArray(of) ? of : [];
}

function words(of: Json | undefined): string {
  return typeof of === 'string' || typeof of === 'number' ? String(of) : '';
}
