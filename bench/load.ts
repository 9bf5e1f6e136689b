import autocannon from 'autocannon';

const ROUNDS = 5;
const SECONDS = 4;
const CONNECTIONS = 64;

/** Makes the key of the agent that calls. */
export async function agentKey(url: string, administrative: string): Promise<string> {
  const response = await fetch(`${url}/v1/beta/users/bench/keys`, {
    method: 'POST',
    headers: { 'x-api-key': administrative, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'bench', kind: 'agent', workspace: 'bench', agent_id: 'bot' }),
  });
  const body: unknown = await response.json();
  if (typeof body === 'object' && body !== null && 'key' in body && typeof body.key === 'string') return body.key;
  throw new Error(`no key: ${JSON.stringify(body)}`);
}

/**
 * Rounds alternate between the servers, so that a slow minute of the machine falls on all.
 * @returns requests per second of each, the median of its rounds
 */
export async function sideBySide(urls: readonly string[], key: string, method: 'GET' | 'POST'): Promise<number[]> {
  const rates = urls.map((): number[] => []);
  for (const url of urls) await load(url, key, method, 2);
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [index, url] of urls.entries()) rates[index]?.push(await load(url, key, method, SECONDS));
  return rates.map(median);
}

let calls = 0;

async function load(url: string, key: string, method: 'GET' | 'POST', seconds: number): Promise<number> {
  const body = JSON.stringify({ amount: 1200, currency: 'EUR', reason: 'customer asked' });
  const result = await autocannon({
    url,
    connections: CONNECTIONS,
    duration: seconds,
    requests: [
      {
        setupRequest: (request) => {
          calls += 1;
          const headers = {
            'x-api-key': key,
            'idempotency-key': `bench-${process.pid}-${calls}`,
            'content-type': 'application/json',
          };
          return method === 'POST'
            ? { ...request, method, path: `/payments/v1/payments/pay_${calls}/refunds`, headers, body }
            : { ...request, method, path: `/payments/v1/payments/pay_${calls}`, headers: { 'x-api-key': key } };
        },
      },
    ],
  });
  const bad = result.non2xx + result.errors + result.timeouts;
  if (bad > 0) throw new Error(`${bad} of ${result.requests.total} ${method} requests to ${url} failed`);
  return result.requests.total / result.duration;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  if (middle === undefined) throw new Error('nothing was measured');
  return middle;
}
