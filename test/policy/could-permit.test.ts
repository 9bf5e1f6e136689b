import { describe, expect, it } from 'vitest';
import { type Caller, couldPermitCaller, couldUsePool } from '../../src/policy/could-permit.ts';
import { BOT, compileText, HEAD, REFUND } from './fixtures.ts';

const tools = `tools: ["${REFUND.name}"]`;

const caller = (more: Partial<Caller> = {}): Caller => ({
  agent: { ...BOT, id: 'bot', team: 'support', workspace: 'demo' },
  key: { id: 'key_1', kind: 'agent', profile: null, user: 'tom' },
  workspace: 'demo',
  target: null,
  ...more,
});

/** Whether the rules could permit the caller a call. */
function could(rules: readonly string[], who: Caller = caller()): boolean {
  const set = compileText(`${HEAD}rules:\n${rules.map((rule, n) => `  - { id: r${n}, ${rule} }`).join('\n')}\n`);
  return couldPermitCaller(set, REFUND, who);
}

describe('what an agent could be permitted', () => {
  it.each([
    ['a rule for its team', [`effect: allow, match: { ${tools}, agents: { team: [support] } }`], true],
    ['a rule for another team', [`effect: allow, match: { ${tools}, agents: { team: [sales] } }`], false],
    ['a rule for another agent by condition', ['effect: allow, when: { agent.id: other }'], false],
    ['a rule that depends on params', ['effect: allow, when: { params.x: { lte: 5 } }'], true],
    ['one of two ways', ['effect: allow, when: { any: [ { agent.team: sales }, { params.x: 1 } ] }'], true],
    ['both of two, one of them never', ['effect: allow, when: { agent.team: sales, params.x: 1 }'], false],
    ['no rule of the tool', ['effect: allow, match: { tools: ["mail.send"] }'], false],
    ['a rule in shadow mode', ['effect: allow, mode: shadow'], false],
    ['a refusal of all its calls', ['effect: allow', 'effect: deny, when: { agent.team: support }'], false],
    ['a refusal of some of its calls', ['effect: allow', 'effect: deny, when: { params.x: 1 }'], true],
    ['a refusal that is over', ['effect: allow', 'effect: deny, until: 2026-01-01'], true],
    ['a refusal that begins later', ['effect: allow', 'effect: pause, from: 2096-01-01'], true],
    ['a refusal of others', ['effect: allow', 'effect: deny, when: { agent.team: sales }'], true],
    ['a rule that asks for approval', ['effect: require_approval, approval: { approvers: { users: [ada] } }'], true],
    ['a rule that constrains', ['effect: constrain, obligations: [ { claim: { on: x, hold: call } } ]'], false],
  ])('%s', (_, rules, expected) => {
    expect(could(rules)).toBe(expected);
  });

  it('by the target, where it is known', () => {
    const rules = ['effect: allow, when: { target: "payment:1" }'];
    expect(could(rules)).toBe(true);
    expect(could(rules, caller({ target: 'payment:1' }))).toBe(true);
    expect(could(rules, caller({ target: 'payment:2' }))).toBe(false);
  });

  it('an agent without a team gets nothing by a rule for teams', () => {
    const nobody = caller({ agent: { ...BOT, team: null } });
    expect(could([`effect: allow, match: { ${tools}, agents: { team: [support] } }`], nobody)).toBe(false);
  });
});

describe('pools', () => {
  const set = compileText(
    `${HEAD}rules:
  - { id: a, effect: allow, match: { agents: { team: [support] } }, obligations: [ { reserve: { pool: refund-desk, units: 1 } } ] }
  - { id: b, effect: constrain, match: { agents: { team: [sales] } }, obligations: [ { reserve: { pool: refund-desk, units: 1 } } ] }
`,
  );
  const uses = (team: string, pool: string) => couldUsePool(set, REFUND, caller({ agent: { ...BOT, team } }), pool);

  it('only of rules that could permit the agent', () => {
    expect([uses('support', 'refund-desk'), uses('sales', 'refund-desk'), uses('support', 'desk-eu')]).toEqual([
      true,
      false,
      false,
    ]);
  });

  it('of a name that params complete: what the rule writes out is no pattern', () => {
    const completed = compileText(
      `${HEAD}rules:\n  - { id: a, effect: allow, obligations: [ { reserve: { pool: "gpu.\${params.size}" } } ] }\n`,
    );
    const asked = ['gpu.large', 'gpu.', 'gpuXlarge', 'my-gpu.large'];
    expect(asked.filter((pool) => couldUsePool(completed, REFUND, caller(), pool))).toEqual(['gpu.large']);
  });
});
