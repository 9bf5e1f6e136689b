import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { makeKey } from '../../src/identity/key-format.ts';
import { createLogger, redactSecrets } from '../../src/telemetry/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { sealedStore } from '../../src/gateway/sealed-store.ts';
import { APPROVAL, EFFECT as ORDINARY } from '../effects/records.ts';
import { refund, startRig } from './rig.ts';

function collect(): { readonly sink: Writable; readonly text: () => string } {
  let text = '';
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString();
      done();
    },
  });
  return { sink, text: () => text };
}

describe('logs', () => {
  it('are JSON lines with level and time by name', () => {
    const { sink, text } = collect();
    const logger = createLogger({ level: 'info', sink });
    logger.info({ a: 1 }, 'hello');
    logger.debug('not written');
    expect(JSON.parse(text())).toMatchObject({ level: 'info', msg: 'hello', a: 1 });
    expect(text().split('\n')).toHaveLength(2);
  });

  it.each(['account', 'agent', 'administrative', 'profile'] as const)('never hold a key: %s', (kind) => {
    const { key, handle } = makeKey(kind);
    const { sink, text } = collect();
    const logger = createLogger({ level: 'trace', sink });
    logger.info({ key, nested: { deep: [`x${key}y`] }, headers: { 'x-api-key': key, authorization: `Bearer ${key}` } });
    logger.error({ err: new Error(`it was ${key}`) }, `url /v1/x?api_key=${key}&b=1`);
    logger.child({ bound: key }).warn('child');
    expect(text()).not.toContain(key);
    expect(text()).not.toContain(key.slice(-20));
    expect(text()).toContain(handle);
    for (const line of text().trim().split('\n')) expect(() => JSON.parse(line)).not.toThrow();
  });

  it.each([
    ['{"authorization":"Basic YWJjOmRlZg=="}', 'YWJj'],
    ['{"cookie":"session=abcdef"}', 'abcdef'],
    ['{"set-cookie":["a=secret1","b=secret2"]}', 'secret2'],
    ['{"password":"pa\\"ss"}', 'ss"'],
    ['bearer abcdefghijklmnop', 'abcdefghijklmnop'],
    // Not a key of ours, and a secret all the same.
    ['GET /live/socket?topic=a&api_key=of-another-gateway&b=1', 'of-another-gateway'],
    ['x?API_KEY=of-another-gateway', 'of-another-gateway'],
    ['eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl', 'c2lnbmF0dXJl'],
    ['-----BEGIN PRIVATE KEY-----\\nMC4CAQAw\\n-----END PRIVATE KEY-----', 'MC4CAQAw'],
  ])('redacts %s', (text, secret) => {
    expect(redactSecrets(text)).not.toContain(secret);
    expect(redactSecrets(text)).toContain('[redacted]');
  });

  it.each([
    'x-api-key',
    'api_key',
    'apikey',
    'authorization',
    'proxy-authorization',
    'cookie',
    'set-cookie',
    'password',
    'secret',
    'token',
  ])('redacts what a member %s has, in whatever case it is written', (name) => {
    for (const member of [name, name.toUpperCase()])
      expect(redactSecrets(`{"a":{"${member}" : "of-another", "b":1}}`)).toBe(
        `{"a":{"${member}" : "[redacted]", "b":1}}`,
      );
  });

  it.each([1, 2, 3, 4])('redacts a key that was percent-encoded %d times', (times) => {
    const { key } = makeKey('agent');
    let text = Array.from(key, (letter) => `%${letter.charCodeAt(0).toString(16)}`).join('');
    for (let time = 1; time < times; time += 1) text = encodeURIComponent(text);
    expect(redactSecrets(`/v1/${text}`)).toContain('[redacted]');
    expect(redactSecrets(`/v1/${text}`)).not.toContain(text.slice(-30));
  });

  it('leaves everything else as it is', () => {
    const text =
      '{"path":"/v1/workspaces/demo/effects","key_id":"key_0a1b2c3d4e5f","tokens_left":5,"note":"bearer of news"}';
    expect(redactSecrets(text)).toBe(text);
  });
});

const EFFECT: Omit<EffectRecord, 'id' | 'createdAt'> = {
  ...ORDINARY,
  life: { state: 'pending_approval', approvalId: 'a' },
};

/** A store that has so many of each, in pages, and what it was asked for. */
function listing(effects: readonly EffectRecord[], approvals: readonly ApprovalRecord[]) {
  const asked: unknown[] = [];
  const paged = <Item>(items: readonly Item[], { limit, cursor }: { limit: number; cursor: string | null }) => {
    const from = Number(cursor ?? 0);
    const next = from + limit < items.length ? String(from + limit) : null;
    return Promise.resolve({ items: items.slice(from, from + limit), next });
  };
  const store: Parameters<typeof createMetrics>[0]['store'] = {
    health: () => ({
      ready: false,
      durability: 'sync',
      problem: { code: 'store_unavailable', message: 'it is away' },
      epoch: 1,
    }),
    now: () => 100_000_000,
    commits: () => ({ done: 5, moved: 4, givenUp: 3 }),
    effects: (workspace, filter) => {
      asked.push([workspace, filter.state]);
      return paged(effects, filter);
    },
    approvals: (workspace, filter) => {
      asked.push([workspace, filter.status]);
      return paged(approvals, filter);
    },
  };
  return { store, asked };
}

describe('metrics', () => {
  it('have unknown outcomes by age, each once, and read them once for all gauges, up to two thousand', async () => {
    const ages = [0, 60_000, 60_001, 600_000, 600_001, 3_600_000, 3_600_001, 86_400_000, 86_400_001, 99_000_000];
    const effects = ages.map((age, n) => ({ ...EFFECT, id: `eff_${n}`, createdAt: 100_000_000 - age }));
    const { store, asked } = listing(
      effects,
      Array.from({ length: 2_500 }, () => APPROVAL),
    );
    const metrics = createMetrics({ store, workspaces: () => ['demo'], swept: () => null });
    const { text } = await metrics.render();
    const at = (age: string): string =>
      new RegExp(`^svc_effects_unknown_by_age\\{workspace="demo",age="${age}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? '';
    expect(['1m', '10m', '1h', '1d', '\\+Inf'].map(at)).toEqual(['2', '2', '2', '2', '2']);
    expect(text).toContain('svc_effects_unknown{workspace="demo"} 10');
    expect(text).toContain('svc_approvals_pending{workspace="demo"} 2000');
    expect(asked).toEqual([['demo', 'unknown'], ...Array.from({ length: 10 }, () => ['demo', 'pending'])]);
    await metrics.render();
    expect(asked).toHaveLength(22);
  });

  it('are there while the store cannot be read, without what only it knows: that is when people look', async () => {
    const away = (): never => {
      throw new StoreUnavailable('read-only');
    };
    const { store } = listing([], []);
    const broken = { ...store, effects: async () => away(), approvals: async () => away() };
    const metrics = createMetrics({ store: broken, workspaces: () => ['demo'], swept: () => null });
    const { text } = await metrics.render();
    expect(text).toMatch(/^svc_store_ready /m);
    expect(text).not.toContain('workspace="demo"');
  });

  it('say nothing more of a workspace that is gone', async () => {
    const { store } = listing([{ ...EFFECT, id: 'eff_1', createdAt: 0 }], [APPROVAL]);
    let workspaces = ['demo', 'other'];
    const metrics = createMetrics({ store, workspaces: () => workspaces, swept: () => null });
    const named = async () => new Set((await metrics.render()).text.match(/^svc_\w+\{workspace="other"/gm));
    expect(await named()).toEqual(
      new Set(
        ['unknown', 'unknown_by_age']
          .map((of) => `svc_effects_${of}{workspace="other"`)
          .concat('svc_approvals_pending{workspace="other"'),
      ),
    );
    workspaces = ['demo'];
    expect(await named()).toEqual(new Set());
  });

  it('say of what is not known yet that it is none, and of times without a case that they are now', async () => {
    const { store } = listing([], []);
    const before = Date.now() / 1000;
    const { text } = await createMetrics({ store, workspaces: () => [], swept: () => null }).render();
    for (const line of [
      'svc_store_ready 0',
      'svc_store_commits_total{result="done"} 5',
      'svc_store_commits_total{result="moved"} 4',
      'svc_store_commits_total{result="given_up"} 3',
      'svc_retention_unsettled 0',
      'svc_archive_behind 0',
      'svc_archive_segment_timestamp_seconds 0',
      'svc_backup_timestamp_seconds 0',
      'svc_fsck_clean_timestamp_seconds 0',
      'svc_retention_swept_timestamp_seconds 0',
    ])
      expect(text.split('\n')).toContain(line);
    for (const name of ['svc_retention_reached', 'svc_effects_unknown_oldest']) {
      const [, seconds] = new RegExp(`^${name}_timestamp_seconds (\\S+)$`, 'm').exec(text) ?? [];
      expect(Number(seconds)).toBeGreaterThanOrEqual(before);
    }
  });

  it('count what happened by its names, and stages only where they were measured', async () => {
    const { store } = listing([], []);
    const metrics = createMetrics({ store, workspaces: () => [], swept: () => null });
    metrics.decided('committed', 'committed', 'proxy');
    metrics.decided('committed', 'committed', 'proxy');
    metrics.decided('committed', 'committed', 'mcp');
    metrics.shadowed(['a/one', 'a/two']);
    metrics.observed('denied_policy', 'mcp');
    metrics.probed('gateway', 'happened');
    metrics.differed('a/one');
    metrics.stages([
      { stage: 'policy', durationMs: 5 },
      { stage: 'execute', durationMs: null },
    ]);
    metrics.step('admit', 'failed', 2);
    metrics.called(null, null, null, 30);
    const { text } = await metrics.render();
    for (const line of [
      'svc_decisions_total{decision="committed",code="committed",via="proxy"} 2',
      'svc_decisions_total{decision="committed",code="committed",via="mcp"} 1',
      'svc_shadow_refusals_total{rule="a/one"} 1',
      'svc_shadow_refusals_total{rule="a/two"} 1',
      'svc_observed_total{would="denied_policy",via="mcp"} 1',
      'svc_probes_total{by="gateway",outcome="happened"} 1',
      'svc_policy_differences_total{rule="a/one"} 1',
      'svc_stage_seconds_sum{stage="policy"} 0.005',
      'svc_store_step_seconds_count{step="admit",result="failed"} 1',
      'svc_proxy_call_seconds_bucket{le="0.025",upstream="none",tool="none",decision="none"} 0',
      'svc_proxy_call_seconds_bucket{le="0.1",upstream="none",tool="none",decision="none"} 1',
    ])
      expect(text.split('\n')).toContain(line);
    expect(text).not.toContain('stage="execute"');
  });

  it('count decisions, stages, steps, answers and what is unknown', async () => {
    const rig = await startRig();
    rig.loseNextAnswer();
    expect((await rig.send('POST', '/v1/workspaces/demo/effects', { body: refund() })).json['decision']).toBe(
      'unknown_effect',
    );
    const archive = { failure: 'the folder is away', last: { segment: 7, at: 1_755_000_000_000 } };
    const retention = { unsettled: 3, reached: 1_750_000_000_000, archive };
    const swept = { ...retention, oldestUnknown: 1_740_000_000_000, at: 1_760_000_000_000 };
    const metrics = createMetrics({
      store: rig.ports.store,
      workspaces: () => ['demo', 'elsewhere'],
      swept: () => swept,
      upkeep: () => ({ backup: 1_770_000_000_000, cleanFsck: 1_765_000_000_000 }),
    });
    metrics.decided('unknown_effect', 'outcome_unknown', 'effects_api');
    metrics.answered('/v1/x/:id', 'GET', 200, 12);
    metrics.alerted('contradiction');
    const { text } = await metrics.render();
    expect(text).toContain('svc_effects_unknown{workspace="demo"} 1');
    expect(text).toContain('svc_effects_unknown{workspace="elsewhere"} 0');
    expect(text).toContain('svc_effects_unknown_by_age{workspace="demo",age="1m"} 1');
    expect(text).toContain('svc_effects_unknown_by_age{workspace="demo",age="+Inf"} 0');
    expect(text).toContain('svc_decisions_total{decision="unknown_effect",code="outcome_unknown",via="effects_api"} 1');
    expect(text).toContain('svc_http_request_seconds_count{route="/v1/x/:id",method="GET",status="200"} 1');
    expect(text).toMatch(/^(?:# HELP svc_\w+ .+\n# TYPE svc_\w+ \w+\n(?:svc_\w+(?:\{.*\})? \S+\n)*\n?)+$/);
    expect(text).toContain('svc_alerts_total{what="contradiction"} 1');
    const figures = [
      'svc_store_ready 1',
      'svc_backup_timestamp_seconds 1770000000',
      'svc_fsck_clean_timestamp_seconds 1765000000',
      'svc_retention_unsettled 3',
      'svc_archive_behind 1',
      'svc_archive_segment_timestamp_seconds 1755000000',
      'svc_retention_reached_timestamp_seconds 1750000000',
      'svc_retention_swept_timestamp_seconds 1760000000',
    ];
    // Whole lines: a time in ms begins like the same in seconds.
    expect(text.split('\n')).toEqual(expect.arrayContaining(figures));
    expect(text).toContain('svc_effects_unknown_oldest_timestamp_seconds 1740000000');
    const { done } = rig.ports.store.commits();
    expect(done).toBeGreaterThan(1);
    expect(text).toContain(`svc_store_commits_total{result="done"} ${done}`);
    expect(text).toContain('svc_store_commits_total{result="moved"} 0');
    // Looking counts nothing.
    const { text: again } = await metrics.render();
    expect(again).toContain(`svc_store_commits_total{result="done"} ${done}`);
    expect(again).toContain(
      'svc_decisions_total{decision="unknown_effect",code="outcome_unknown",via="effects_api"} 1',
    );
    await rig.close();
  });

  it('measure the steps of a store, failed ones too, and change nothing of them', async () => {
    const rig = await startRig();
    const { store } = rig.ports;
    const seen: string[] = [];
    const unsealed = { sealText: (text: string) => text, openText: (text: string) => text };
    const watched = sealedStore(store, unsealed, {
      step: (step, result, ms) => seen.push(`${step} ${result} ${ms >= 0}`),
      stages: (of) => seen.push(...of.map(({ stage, durationMs }) => `stage ${stage} ${durationMs}`)),
      shadowed: (rules) => seen.push(...rules),
    });
    expect(watched.installId).toBe(store.installId);
    await expect(
      watched.resolve({
        workspace: 'demo',
        effectId: 'eff_none',
        outcome: { kind: 'not_happened' },
        settledBy: { by: 'resolve', keyId: 'key_x', user: null, forced: false, comment: null, evidence: null },
        actor: { type: 'key', id: 'key_x' },
        fence: { epoch: 1, n: 1, nonce: 'x' },
        force: false,
      }),
    ).resolves.toMatchObject({ kind: 'absent' });
    await store.close();
    await expect(
      watched.settle({
        workspace: 'demo',
        effectId: 'eff_none',
        fence: { epoch: 1, n: 1, nonce: 'x' },
        outcome: { kind: 'unknown' },
        settledBy: { by: 'owner' },
        evidence: { code: 'timeout', message: '', answered: null, startedAt: null, endedAt: null },
        stages: [{ stage: 'execute', status: 'unknown', startedAt: 0, durationMs: 5, detail: null }],
      }),
    ).rejects.toBeInstanceOf(StoreUnavailable);
    expect(seen).toEqual(['resolve done true', 'stage execute 5', 'settle failed true']);
    await rig.close();
  });
});

it('a log for people has its line breaks, and nothing that steers a terminal', () => {
  const lines: string[] = [];
  const logger = createLogger({ level: 'info', isText: true, sink: { write: (line) => void lines.push(line) } });
  logger.warn({ detail: 'a.yaml:1:1 error\n    1 | x', name: '\u001b[2Jgone' }, 'not in force');
  expect(lines).toEqual(['svc: warn: not in force\n  a.yaml:1:1 error\n      1 | x\n  name: \ufffd[2Jgone\n']);
});
