// Sends one body N times at once and prints how often each decision came back. Usage: flood.mjs URL N < {key, body}
import { text } from 'node:stream/consumers';
import { Agent, request } from 'undici';

const [url, count] = process.argv.slice(2);
const { key, body } = JSON.parse(await text(process.stdin));
const agent = new Agent({ connections: 256 });
const decisions = {};
async function decide() {
  const answer = await request(url, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    dispatcher: agent,
  });
  const { decision, code } = await answer.body.json();
  return decision ?? code;
}

await Promise.all(
  Array.from({ length: Number(count) }, async () => {
    let name = await decide();
    // An overloaded gateway sheds: nothing was done, and the same call is sent again.
    while (name === 'not_ready') name = await decide();
    decisions[name] = (decisions[name] ?? 0) + 1;
  }),
);
await agent.close();
process.stdout.write(JSON.stringify(decisions));
