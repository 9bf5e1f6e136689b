import type { Command } from 'commander';
import { type CliContext } from './command.ts';
import { json } from './terminal.ts';

/** `svc config check`. */
export function addConfig(program: Command, { terminal, exit }: CliContext): void {
  const config = program.command('config').description('the configuration');
  config
    .command('check')
    .description('check a configuration and its policies; all findings at once')
    .argument('<file>', 'the configuration')
    .option('--json', 'print JSON')
    .option('--strict', 'warnings count as findings: exit 1')
    .action(async (file: string, options: { readonly json?: true; readonly strict?: true }) => {
      // Loaded for this command only: configuration and policies are a third of what any command would wait for.
      const { checkFiles } = await import('./check-files.ts');
      const checked = await checkFiles(file, { environment: {}, color: terminal.color });
      const code = options.strict && checked.exit === 0 && checked.findings.length > 0 ? 1 : checked.exit;
      if (options.json) terminal.out(json({ findings: checked.findings }));
      else if (code === 0) terminal.out(checked.text.trimEnd());
      else terminal.err(checked.text.trimEnd());
      exit(code);
    });
}
