import { expect } from 'vitest';
import { makeApiKey, send, type TestGateway } from '../system/gateway.ts';

/*
 * What makes a gateway give each decision, for tables of clients: by the word of a call, which is its target
 * (`case:{word}`), or by the agent that calls.
 */

/** The beginning of a configuration: everything but upstreams, tools and routes. */
export const CASES = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [lead] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces:
  - id: demo
    agents:
      - { id: bot, team: support, owner: olga }
      - { id: other, team: support, owner: olga }
      - { id: stopped, team: support, owner: olga }
      - { id: disabled, team: support, owner: olga, disabled: true }
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
pools: [ { id: slot, units: 1 } ]
`;

/**
 * @param match what is allowed at all
 * @param cost of a call with the word `costly`; the purse has 1
 */
export const casesPolicy = (match: string, cost: number): string => `
apiVersion: svc-gateway/v1
kind: PolicySet
name: table
owner: team
budgets: { purse: { unit: cent, by: [agent.id], per: year, limit: 1 } }
rules:
  - { id: all, effect: allow, match: ${match} }
  - { id: "no", effect: deny, match: { targets: ["case:no"] }, reason: "Not this one" }
  - { id: ask, effect: require_approval, match: { targets: ["case:ask"] }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "It" } }
  - { id: purse, effect: constrain, match: { targets: ["case:costly"] }, obligations: [ { budget: { use: purse, amount: ${cost} } } ] }
  - { id: claim, effect: constrain, match: { targets: ["case:claimed"] }, obligations: [ { claim: { on: "case:claimed", hold: call } } ] }
  - { id: slot, effect: constrain, match: { targets: ["case:reserved"] }, obligations: [ { reserve: { pool: slot, units: 1 } } ] }
`;

/**
 * Makes the keys, pauses an agent, and takes what calls are refused for.
 * @param nothing a pattern of tools that fits none: `narrow` may call these only
 * @returns the key of an agent, and of `narrow`
 */
export async function arrangeCases(gateway: TestGateway, nothing: string): Promise<(name: string) => string> {
  const keys = new Map<string, string>();
  const keyOf = (name: string): string => keys.get(name) ?? '';
  const agent = (agent_id: string, more: object = {}): Promise<string> =>
    makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id, ...more });
  for (const id of ['bot', 'other', 'stopped', 'disabled']) keys.set(id, await agent(id));
  keys.set('narrow', await agent('bot', { allowed_tools: [nothing] }));
  const operator = await makeApiKey(gateway, 'maria', { kind: 'account', workspace: 'demo' });
  const must = async (key: string, path: string, body: unknown): Promise<void> => {
    const answered = await send(gateway.url, key, 'POST', `/v1/workspaces/demo${path}`, body);
    expect(answered.status, `${path}: ${JSON.stringify(answered.body)}`).toBe(201);
  };
  await must(operator, '/pauses', { scope: { agent: 'stopped' }, reason: 'Under repair' });
  await must(keyOf('other'), '/claims', { target: 'case:claimed', ttl_s: 600 });
  await must(keyOf('other'), '/reservations', { pool: 'slot', units: 1, ttl_s: 600 });
  return keyOf;
}
