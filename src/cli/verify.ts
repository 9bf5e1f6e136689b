import type { Command } from 'commander';
import { printable } from '../diagnostics/render.ts';
import { verifyReport } from '../receipts/verify-report.ts';
import { type CliContext, readText, withExitCodes } from './command.ts';
import { json } from './terminal.ts';

interface VerifyOptions {
  readonly trust: string;
  readonly disclosure?: string;
  readonly json?: true;
}

/** `svc verify`: a receipt, offline. */
export function addVerify(program: Command, { terminal, exit }: CliContext): void {
  const command = program
    .command('verify')
    .description('verify a receipt offline: a JWS, its JSON view, or an answer that holds one')
    .argument('<file>', 'the receipt')
    .requiredOption('--trust <file>', 'the keys to believe: a JWKS, e.g. what /.well-known/jwks.json answered')
    .option('--disclosure <file>', 'salts and values that open commitments')
    .option('--json', 'print JSON')
    .action(async (file: string, options: VerifyOptions) => {
      const report = verifyReport({
        receipt: await readText(file),
        trust: await readText(options.trust),
        disclosure: options.disclosure === undefined ? null : await readText(options.disclosure),
      });
      const lines = options.json ? [json(report.json)] : report.text.trimEnd().split('\n').map(printable);
      for (const line of lines) terminal.out(line);
      exit(report.exit);
    });
  withExitCodes(command, 'VALID', 'INVALID', 'UNDECIDABLE, or a file cannot be read');
}
