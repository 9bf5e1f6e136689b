import type { ChosenPolicies } from '@svc-gateway/client';
import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { printable } from '../diagnostics/render.ts';
import { CommandFailure } from './ports.ts';
import { json, table, wire } from './terminal.ts';

interface ChangeOptions extends GatewayAccess {
  readonly comment?: string;
}

function commentOf({ comment }: ChangeOptions): { readonly comment?: string } {
  return comment === undefined ? {} : { comment };
}

/** `svc policy`: which policies all gateways of a store run. */
export function addPolicy(program: Command, { terminal, exit }: CliContext): void {
  const policy = program.command('policy').description('which policies are in force, on all gateways of the store');

  talksToGateway(policy.command('history').description('what was in force, since when, and who put it there')).action(
    async (options: GatewayAccess) => {
      const history = await (await connect(options)).policies.history();
      if (options.json) return terminal.out(json(wire(history)));
      const rows = history.activations.map(({ version, at, how, by, why, files = [] }) => [
        version === history.inForce ? '*' : '',
        version,
        at,
        how,
        `${by.type} ${by.id}`,
        why ?? files.join(' '),
      ]);
      if (rows.length === 0) terminal.out('Nothing is on record.');
      else terminal.out(table(['', 'version', 'since', 'how', 'by', 'why, or which files'], rows));
      if (history.filesVersion !== history.inForce)
        terminal.out(
          `The files of this gateway (${history.filesVersion ?? 'which cannot be used'}) are not in force. Put them in force with: svc policy activate`,
        );
    },
  );

  talksToGateway(policy.command('show').description('what the policies of a version said, file by file'))
    .argument('<version>', 'one that svc policy history shows')
    .action(async (version: string, options: GatewayAccess) => {
      const shown = await (await connect(options)).policies.show(version);
      if (options.json) return terminal.out(json(shown));
      if (!shown.proven) terminal.err('Not held against its version: it does not fit the configuration of now.');
      for (const { file, text, lists } of shown.files) {
        const named = lists.map((list) => [`# list ${list.name} of ${file}`, list.text ?? ''] as const);
        for (const [title, body] of [[`# ${file}`, text] as const, ...named])
          for (const line of [title, ...body.trimEnd().split('\n')]) terminal.out(printable(line));
      }
    });

  const comments = (command: Command): Command =>
    talksToGateway(command.option('--comment <text>', 'why; stands in the history and the ledger'));
  comments(
    policy
      .command('activate')
      .description('put the policies in the files of the gateway in force, or those of an earlier version')
      .argument('[version]', 'one that svc policy history shows'),
  ).action(async (version: string | undefined, options: ChangeOptions) => {
    tell(terminal, options, await (await connect(options)).policies.activate(version, commentOf(options)));
  });
  comments(policy.command('rollback').description('put the policies in force that were in force before these')).action(
    async (options: ChangeOptions) => {
      tell(terminal, options, await (await connect(options)).policies.rollback(commentOf(options)));
    },
  );

  addDigest(policy, terminal, exit);
  addProposals(policy, terminal);
  addSuggest(policy, terminal);
}

/** Which version files are, offline. */
function addDigest(policy: Command, terminal: CliContext['terminal'], exit: CliContext['exit']): void {
  policy
    .command('digest')
    .description('the version that policy files make, offline, as receipts and the history name it')
    .argument('<paths...>', 'policy files, or folders with them')
    .option('--json', 'print JSON')
    .action(async (paths: readonly string[], options: { readonly json?: true }) => {
      // Loaded for this alone: most commands read no YAML.
      const { policyTextToWire, readPolicyTexts, versionOfShown } = await import('../policy/policy-texts.ts');
      const findings: Finding[] = [];
      const { texts } = await readPolicyTexts(paths, findings);
      if (findings[0] !== undefined) throw new CommandFailure(findings[0].message);
      const version = versionOfShown(texts.map(policyTextToWire));
      if (version === null) terminal.err('svc: not all of them are policy sets with their list files');
      else terminal.out(options.json ? json({ version, files: texts.map(({ file }) => file) }) : version);
      exit(version === null ? 1 : 0);
    });
}

/** What people approved each time, as a rule. */
function addSuggest(policy: Command, terminal: CliContext['terminal']): void {
  talksToGateway(
    policy.command('suggest').description('rules that would let run what people approved each time; changes nothing'),
  ).action(async (options: GatewayAccess) => {
    const found = await (await connect(options)).policies.suggestions();
    if (options.json) return terminal.out(json(wire(found)));
    if (found.suggestions.length === 0) terminal.out('Nothing is suggested.');
    for (const { rule, tool, file, line, text, people, since, until, approvals } of found.suggestions) {
      const ids = approvals.map((one) => one.approvalId).join(' ');
      for (const comment of [
        `${tool}: approved ${approvals.length} times by ${people.join(', ')}, ${since} to ${until}, never rejected`,
        `Requests: ${ids}`,
        `In ${file}, in the place of the rule ${rule} (line ${line}):`,
      ])
        terminal.out(printable(`# ${comment}`));
      for (const row of text.trimEnd().split('\n')) terminal.out(printable(row));
      terminal.out('');
    }
  });
}

/** Where two people have to stand behind policies (`policies.second_person`). */
function addProposals(policy: Command, terminal: CliContext['terminal']): void {
  talksToGateway(
    policy.command('proposals').description('which policies were proposed, and wait for another person'),
  ).action(async (options: GatewayAccess) => {
    const found = await (await connect(options)).policies.proposals();
    if (options.json) return terminal.out(json(wire(found)));
    const rows = found.proposals.map(({ id, version, status, at, how, by, people, why, files = [] }) => [
      id,
      version,
      status,
      at,
      how,
      `${by.type} ${by.id}`,
      people.join(' '),
      why ?? files.join(' '),
    ]);
    if (rows.length === 0) terminal.out('Nothing is proposed.');
    else
      terminal.out(
        table(['id', 'version', 'status', 'at', 'how', 'by', 'who stands behind it', 'why, or which files'], rows),
      );
  });

  talksToGateway(
    policy
      .command('confirm')
      .description('confirm policies that somebody else has proposed; svc policy show prints what they say')
      .argument('<proposal>', 'one that svc policy proposals shows'),
  ).action(async (proposal: string, options: GatewayAccess) => {
    tell(terminal, options, await (await connect(options)).policies.confirm(proposal));
  });

  talksToGateway(
    policy
      .command('withdraw')
      .description('withdraw what was proposed, or turn it down')
      .argument('<proposal>', 'one that svc policy proposals shows'),
  ).action(async (proposal: string, options: GatewayAccess) => {
    const withdrawn = await (await connect(options)).policies.withdraw(proposal);
    terminal.out(options.json ? json(wire(withdrawn)) : `Over: ${withdrawn.id} (${withdrawn.status})`);
  });
}

/** Says what is in force now, and what waits for somebody. */
function tell(terminal: CliContext['terminal'], { json: asJson }: GatewayAccess, chosen: ChosenPolicies): void {
  const { version, proposal } = chosen;
  if (asJson) return terminal.out(json(wire(chosen)));
  if (proposal === undefined || proposal.status === 'confirmed') return terminal.out(`In force: ${version}`);
  const people = proposal.stillNeeds === 1 ? 'another person confirms it' : 'two people confirm it';
  for (const line of [
    `Proposed: ${proposal.version}, until ${proposal.expiresAt}`,
    `In force until ${people}: ${version}`,
    `svc policy show ${proposal.version}`,
    `svc policy confirm ${proposal.id}`,
  ])
    terminal.out(line);
}
