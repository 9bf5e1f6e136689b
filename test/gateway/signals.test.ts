import { once } from 'node:events';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { createExitStack } from '../../src/gateway/exit-stack.ts';
import { openGround } from '../../src/gateway/ground.ts';
import { readFiles } from '../../src/gateway/in-force.ts';
import { OwnSettings } from '../../src/gateway/in-force.ts';
import { openSignals } from '../../src/gateway/signals.ts';
import { openViews } from '../../src/gateway/views.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { storeFolder } from '../contract/embedded-store.ts';

const PATIENT = { timeout: 20_000, interval: 20 } as const;

test('receivers that a reload names are told of what is seen here, and what they do not take is a note', async () => {
  const posted: unknown[] = [];
  const receiver = createServer((request, response) => {
    void json(request).then((body) => {
      posted.push(body);
      response.writeHead(posted.length === 1 ? 204 : 410).end();
    });
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  const folder = storeFolder();
  mkdirSync(join(folder, 'policies'));
  const config = `
server: { public_url: "https://gw.test" }
store: { kind: embedded, path: "${folder}/store" }
workspaces: [ { id: demo } ]
policies: { paths: ["${folder}/policies"] }
`;
  const environment = { SECRET: `whsec_${Buffer.alloc(32, 'a').toString('base64')}` };
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  const files = { without: join(folder, 'without.yaml'), with: join(folder, 'with.yaml') };
  writeFileSync(files.without, config);
  writeFileSync(files.with, `${config}webhooks: [ { name: ops, url: "${url}", secret: "\${SECRET}" } ]\n`);

  const opened = createExitStack();
  try {
    const options = { configFile: files.without, environment, port: 0, log: 'none', firstKey: 'file' } as const;
    const logged: Record<string, unknown>[] = [];
    const logger = createLogger({ level: 'info', sink: { write: (line) => void logged.push(JSON.parse(line)) } });
    const ground = { ...(await openGround(options, opened)), logger };
    const own = new OwnSettings(ground.held);
    const none = { reached: null, oldestUnknown: null, archive: null };
    const swept = { lost: 0, approvalsExpired: 0, aged: 0, unsettled: 3, ...none, at: 0 };
    const views = openViews(ground, own, opened);
    const { notifying, silent, metrics } = openSignals(ground, views, own, () => swept, opened);
    // What the store was opened with counts from now on.
    expect(ground.measures.step).toBe(metrics.step);
    notifying.start();
    opened.push(() => notifying.stop());

    ground.held.inForce = await readFiles(files.with, environment);
    notifying.changed();
    await expect.poll(() => posted, PATIENT).toHaveLength(1);
    const links = { open: 'https://gw.test/console' };
    expect(posted[0]).toMatchObject({ type: 'retention.stalled', data: { effects: 3, links } });
    expect(notifying.notes()).toEqual([]);
    notifying.observed.quarantined('crm.look', 'gone');
    await expect.poll(() => notifying.notes(), PATIENT).toHaveLength(1);
    expect(posted[1]).toMatchObject({ type: 'tool.quarantined', data: { tool: 'crm.look', state: 'gone' } });
    expect(notifying.notes()[0]).toMatchObject({
      part: 'notifications',
      message: expect.stringMatching(/^1 notification could .* resend/),
    });
    // Of those that are delivered, the log says nothing.
    const about = { level: 'warn', receiver: 'ops', event: 'tool.quarantined', why: expect.stringContaining('410') };
    expect(logged).toMatchObject([{ ...about, msg: 'a notification could not be delivered' }]);

    for (let calls = 0; calls < 3; calls += 1) silent.heard('payments', 'timeout');
    const alert = { level: 'error', alert: 'upstream_silent', upstream: 'payments', code: 'timeout' };
    expect(logged.slice(1)).toMatchObject([{ ...alert, msg: 'an upstream does not answer' }]);
    expect((await metrics.render()).text).toMatch(/what="upstream_silent"\S* 1$/m);
  } finally {
    await opened.close();
    receiver.closeAllConnections();
    receiver.close();
    rmSync(folder, { recursive: true });
  }
});
