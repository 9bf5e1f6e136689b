import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Approval } from '@svc-gateway/client';
import { printable } from '../diagnostics/render.ts';
import { amountText, currencyOfParam, moneyText } from '../effects/model/money.ts';
import { toMilliseconds } from './pauses.ts';
import { WrongUsage } from './ports.ts';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toCount } from './command.ts';
import { inShort, json, showPage, type Terminal, styled, table, wire } from './terminal.ts';

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
    .action(async ({ status, limit, cursor, ...options }: ListOptions) => {
      const page = await (await connect(options)).approvals.list({ status, limit, ...(cursor && { cursor }) });
      if (options.json) return terminal.out(json(wire(page)));
      const rows = page.approvals.map((one) => [
        one.id,
        one.tool,
        one.target,
        one.status,
        one.expiresAt,
        inShort(one.summary ?? ''),
      ]);
      const names = ['approval', 'tool', 'target', 'status', 'expires', 'summary'];
      showPage(terminal, page.nextCursor, 'approvals', names, rows);
    });

  talksToGateway(approvals.command('show').description('one request: what is asked, by whom, who may decide'))
    .argument('<id>', 'approval id')
    .action(async (id: string, options: GatewayAccess) => {
      const approval = await (await connect(options)).approvals.get(id);
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
    if (allowFor !== undefined && times === undefined) throw new WrongUsage('--allow-for needs --allow-next');
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
  const { action, requirements, votes, costs, stopped, why = [] } = approval;
  const lines: readonly (readonly [string, string])[] = [
    ['approval', approval.id],
    ['status', `${approval.status}, ${approval.approvals} of ${approval.quorum} approvals`],
    ['asked', approval.summary ?? ''],
    ['tool', approval.tool],
    ['target', approval.target],
    ['sent to', [action?.upstream ?? '', action?.method ?? '', action?.path ?? ''].join(' ').trim()],
    ['by', askedBy(approval.requestedBy)],
    ['made', approval.createdAt],
    ['expires', approval.expiresAt],
    ['effect', approval.effectId],
    // Why an approved call is not sent yet, or never will be.
    ...(stopped === undefined ? [] : [['stopped', stopped.message] as const]),
    // What is left of these limits stands with what it costs.
    ...requirements.flatMap(({ beyond }) =>
      beyond === undefined ? [] : [['beyond', `the limit of ${beyond.replace(':', ' ')}`] as const],
    ),
    ...changeLines(approval),
    ['digest', approval.digest],
  ];
  for (const [name, value] of lines) terminal.out(`${name.padEnd(9)} ${styled(terminal, 'bold', value)}`);
  showParams(terminal, approval);
  const titled = (title: string, head: readonly string[], rows: readonly (readonly string[])[]): void =>
    terminal.out(`\n${styled(terminal, 'bold', title)}\n${table(head, rows)}`);
  if (costs.length > 0)
    titled(
      'What it costs',
      ['budget', 'amount', 'limit', 'spent', 'held'],
      costs.map(({ budget, unit, amount, limit, spent, held }) => [
        budget,
        ...[amount, limit, spent, held].map((figure) =>
          figure == null ? '' : amountText(figure, unit, approval.params?.['currency']),
        ),
      ]),
    );
  titled(
    'Why somebody is asked',
    ['rule', 'what it is for', 'could not judge'],
    why.map(({ rule, description, unknown }) => [rule, description ?? '', unknown.join(', ')]),
  );
  titled(
    'Who may decide',
    ['rule', 'roles', 'users', 'agreed', 'others may, too'],
    requirements.map(({ rule, approvers, approvals, quorum, escalates }) => [
      rule,
      approvers.roles.join(', '),
      approvers.users.join(', '),
      `${approvals} of ${quorum}`,
      escalates === undefined
        ? ''
        : `from ${escalates.at}: ${[...escalates.to.roles, ...escalates.to.users].join(', ')}`,
    ]),
  );
  if (votes.length > 0)
    titled(
      'Votes',
      ['at', 'user', 'key', 'verdict', 'comment'],
      votes.map(({ at, user, keyId, verdict, comment }) => [at, user, keyId, verdict, comment ?? '']),
    );
}

/** Every param on its own line, money also as money. Characters that would control a terminal are escaped. */
function showParams(terminal: Terminal, { params, paramsOmitted, paramsTruncated, costs }: Approval): void {
  terminal.out(`\n${styled(terminal, 'bold', 'Params')}`);
  if (params === undefined) return terminal.out(`(${printable(paramsOmitted ?? '')})`);
  const rows = Object.entries(params).map(([name, value]) => {
    const money = moneyText(value, currencyOfParam(name, params, costs));
    return [name, money === null ? JSON.stringify(value) : `${money} (${JSON.stringify(value)})`];
  });
  terminal.out(rows.length === 0 ? '(none)' : table(['name', 'value'], rows));
  if (paramsTruncated) terminal.out('Some are cut: they are longer than is shown here.');
}

/** What an approver changed, and what one may change. */
function changeLines({ changed, askedParams, requirements, allowAlike }: Approval): (readonly [string, string])[] {
  const lines: (readonly [string, string])[] = [];
  const asked = askedParams === undefined ? '' : `, asked were ${JSON.stringify(askedParams)}`;
  if (changed !== undefined) lines.push(['changed', `${changed.params.join(', ')} by ${changed.by}${asked}`]);
  for (const { editable } of requirements)
    if (editable !== undefined) lines.push(['may set', JSON.stringify(editable)]);
  if (allowAlike === undefined) return lines;
  // What may be allowed ahead with an approval, and what is alike.
  const { times, forS, varies } = allowAlike;
  const but = Object.keys(varies).length === 0 ? '' : `, but for ${JSON.stringify(varies)}`;
  const hours = `for ${forS / 60} minutes at most`;
  lines.push(['may allow', `the next ${times} like it, ${hours}: same agent, tool, target and params${but}`]);
  return lines;
}

/** Who asked. None of the people named here may decide. */
function askedBy({ agentId, agentOwner, user }: Approval['requestedBy']): string {
  const owner = agentOwner === null ? '' : `, owner ${agentOwner}`;
  return `agent ${agentId}${owner}${user === null ? '' : `, user of the key ${user}`}`;
}
