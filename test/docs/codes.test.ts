import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CODES, type Code } from '../../src/effects/model/codes.ts';
import { plainProblem, renderProblem } from '../../src/api/problem.ts';
import { DECISION_TABLE, DECISIONS, nextOf } from '../../src/effects/model/decision.ts';

const FOLDER = 'docs/errors';
const pages = readdirSync(FOLDER).filter((file) => file !== 'README.md');
const page = (code: string): string => readFileSync(join(FOLDER, `${code}.md`), 'utf8');

test('every page has a code and every code a page', () => {
  expect(Object.keys(CODES).length).toBeGreaterThan(50);
  expect(pages.map((file) => file.replace(/\.md$/, '')).sort()).toEqual(Object.keys(CODES).sort());
});

describe.each(Object.entries(CODES))('%s', (code, { status, title }) => {
  test('has the title of the table', () => {
    expect(page(code).split('\n')[0]).toBe(`# \`${code}\`: ${title}`);
  });

  test('says what it means, whether it happened, what to do, in this order', () => {
    const headings = [...page(code).matchAll(/^## (.*)$/gm)].map(([, text]) => text);
    expect(headings).toEqual(['What it means', 'Did it happen?', 'What to do', 'Example']);
  });

  test('its example is an answer with this code', () => {
    const [, http = '', json = ''] = /```http\n(.*?)```\n\n```json\n(.*?)```/s.exec(page(code)) ?? [];
    const body: Record<string, unknown> = JSON.parse(json);
    const stated = Number(/^HTTP\/1\.1 (\d+)/.exec(http)?.[1]);
    expect(page(code)).toContain(`\nHTTP ${stated}`);
    if (status === null) {
      expect(body).toMatchObject({ reason: { code } });
      const decision = DECISIONS.find((one) => one === body['decision']);
      if (decision === undefined) throw new Error(`${String(body['decision'])} is no decision`);
      // Drift is answered as the call asked; an unknown outcome may be safe to send again.
      const steps = code.startsWith('state_') ? ['replan', 'block'] : [nextOf(decision, code as Code)];
      expect(steps).toContain(body['next']);
      const { happened } = DECISION_TABLE[decision];
      const safe_to_retry = happened !== 'maybe' && code !== 'key_closed';
      expect(body).toMatchObject({ did_it_happen: happened, safe_to_retry });
    } else {
      expect(stated).toBe(status);
      expect(body).toMatchObject({ code, status, title });
      // What is answered to a run is not always what is answered to another change.
      const { did_it_happen, safe_to_retry, next } = body;
      const contexts = [
        { run: false, changes: false },
        { run: false, changes: true },
        { run: true, changes: true },
      ];
      const answers = contexts.map(
        (context) =>
          renderProblem(plainProblem(code as Code, ''), {}, { publicUrl: '', requestId: '', ...context }).body,
      );
      expect(answers).toContainEqual(expect.objectContaining({ did_it_happen, safe_to_retry, next }));
    }
  });

  test('says on its page whether it happened as the answer does', () => {
    const [, said = ''] = /## Did it happen\?\n\n(.*)/.exec(page(code)) ?? [];
    const [, told] = /"did_it_happen": "(\w+)"/.exec(page(code)) ?? [];
    if (/^(?:Maybe|As the effect says)/.test(said)) expect(told).toBe('maybe');
    if (said.startsWith('Yes')) expect(told).toBe('yes');
    if (/^No[.;,:]/.test(said)) expect(told).toBe('no');
  });

  test('stands in the list', () => {
    expect(readFileSync(join(FOLDER, 'README.md'), 'utf8')).toContain(`| [\`${code}\`](${code}.md) |`);
  });
});
