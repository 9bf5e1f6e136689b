// An MCP server on standard input and output that says what the server at the address in its first argument says.
import { createInterface } from 'node:readline';

const [, , address] = process.argv;

for await (const line of createInterface({ input: process.stdin })) {
  const answered = await fetch(address, { method: 'POST', body: line });
  const said = await answered.text();
  if (said !== '') process.stdout.write(`${said}\n`);
}
