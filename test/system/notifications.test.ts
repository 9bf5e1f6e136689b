import { spawnSync } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeCa } from '../upstream/certificates.ts';
import { send } from './gateway.ts';
import { startMailServer } from './mail-server.ts';
import { startWebhookReceiver, type WebhookReceiver } from './webhook-receiver.ts';
import { refund, startWorld, type World, worldFiles } from './world.ts';

const secretOf = (name: string): string => `whsec_${Buffer.from(name.padEnd(32, '.')).toString('base64')}`;
const [NOW, BEFORE] = [secretOf('the present one'), secretOf('the one before')];
const PATIENT = { timeout: 60_000, interval: 50 } as const;

interface Asked {
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

let world: World;
let receiver: WebhookReceiver;
let rotating: WebhookReceiver;
type MailServer = Awaited<ReturnType<typeof startMailServer>>;
let mail: MailServer;
/** By TLS: with a certificate that the gateway trusts, and with one of another CA. */
let [encrypted, foreign]: [MailServer | null, MailServer | null] = [null, null];
/** Begins in clear, and offers STARTTLS. */
let asking: MailServer;
let folder = '';
/** Takes Slack's posts, sends others elsewhere, and wants nothing more at a third address. */
let other: Server;
const asked: Asked[] = [];
const at = (path: string): readonly Asked[] => asked.filter((one) => one.path === path);

beforeAll(async () => {
  receiver = await startWebhookReceiver(NOW, () => false);
  rotating = await startWebhookReceiver(BEFORE, () => false);
  const user = { name: 'svc', password: 'p@ss:word' };
  mail = await startMailServer(user, 1);
  const ca = makeCa('of the tests');
  encrypted = await startMailServer(user, 0, ca.issue('mail.test', { ip: '127.0.0.1' }));
  foreign = await startMailServer(user, 0, makeCa('of others').issue('mail.test', { ip: '127.0.0.1' }));
  asking = await startMailServer(user, 0, { ...ca.issue('localhost'), isAsked: true });
  folder = await mkdtemp(join(tmpdir(), 'svc-notify-'));
  await writeFile(join(folder, 'ca.pem'), ca.cert);
  other = createServer((request, response) => {
    void text(request).then((body) => {
      asked.push({ path: request.url ?? '', headers: request.headers, body });
      if (request.url === '/moved') response.writeHead(307, { location: '/stolen' });
      if (request.url === '/gone') response.writeHead(410);
      response.end('ok');
    });
  });
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const elsewhere = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  const webhooks = `
telemetry: { budget_near_percent: 45 }
webhooks:
  - { name: ops, url: "${receiver.url}", secret: "\${HOOK_NOW}", retry_first: 50ms }
  - { name: rotating, url: "${rotating.url}", secret: "\${HOOK_NOW}", previous_secret: "\${HOOK_BEFORE}", events: [pause.set] }
  - { name: slack, url: "${elsewhere}/services/T0/B0/x", format: slack, events: [approval.requested, pause.set] }
  - { name: mail, url: "smtp://svc:\${MAIL_PASSWORD}@127.0.0.1:${mail.port}", format: mail, from: svc@example.com, to: [maria@example.com, tom@example.com], events: [approval.requested], retry_first: 50ms }
  - { name: mail-tls, url: "smtps://svc:\${MAIL_PASSWORD}@127.0.0.1:${encrypted.port}", format: mail, from: svc@example.com, to: [maria@example.com], events: [pause.set] }
  - { name: mail-foreign, url: "smtps://svc:\${MAIL_PASSWORD}@127.0.0.1:${foreign.port}", format: mail, from: svc@example.com, to: [maria@example.com], events: [pause.set] }
  # The name is none of loopback to the configuration, where mail may go in clear.
  - { name: mail-starttls, url: "smtp://svc:\${MAIL_PASSWORD}@LOCALHOST:${asking.port}", format: mail, from: svc@example.com, to: [maria@example.com], events: [pause.set] }
  - { name: moved, url: "${elsewhere}/moved", secret: "\${HOOK_NOW}", events: [pause.set] }
  - { name: gone, url: "${elsewhere}/gone", secret: "\${HOOK_NOW}", events: [pause.set] }
  - { name: private, url: "${elsewhere}/private", secret: "\${HOOK_NOW}", events: [pause.set], network: public, retry_first: 50ms }
  - { name: elsewhere, url: "${elsewhere}/elsewhere", secret: "\${HOOK_NOW}", workspaces: [elsewhere] }
`;
  world = await startWorld({
    files: (url) => {
      const files = worldFiles(url);
      return { ...files, config: `${files.config}${webhooks}` };
    },
    env: {
      HOOK_NOW: NOW,
      HOOK_BEFORE: BEFORE,
      MAIL_PASSWORD: encodeURIComponent('p@ss:word'),
      NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'),
    },
  });
});
afterAll(async () => {
  await world.close();
  await receiver.close();
  await rotating.close();
  for (const one of [mail, encrypted, foreign, asking]) await one?.close();
  await rm(folder, { recursive: true, force: true });
  other.closeAllConnections();
  other.close();
});

const told = (type: string): WebhookReceiver['taken'] => receiver.taken.filter((one) => one.type === type);

describe('a call that waits for approval', () => {
  it('is told to each receiver in its form, with the summary of the rule and nothing else of its params', async () => {
    const { body } = await world.run(refund({ amount: 60_000, payment_id: 'pay_<b>1', reason: 'hidden-reason' }));
    const { id } = body.approval;
    await expect.poll(() => told('approval.requested'), PATIENT).toHaveLength(1);
    const [{ data }] = told('approval.requested') as [WebhookReceiver['taken'][number]];
    expect(data).toMatchObject({
      title: 'A call waits for approval',
      workspace: 'demo',
      effect_id: body.effect_id,
      tool: 'payments.refund',
      agent_id: 'bot',
      summary: 'Refund 60000 cents of "pay_<b>1"',
      approval_id: id,
      links: {
        open: body.approval.url,
        effect: `${world.gateway.url}/console/demo/effects/${body.effect_id}`,
      },
    });
    const slackPath = '/services/T0/B0/x';
    await expect.poll(() => at(slackPath).length, PATIENT).toBe(1);
    const slack = JSON.parse(at(slackPath)[0]?.body ?? '');
    expect(slack.blocks[0].text.text).toBe(`*A call waits for approval*\n<${body.approval.url}|Open the request>`);
    expect(slack.blocks[1].text).toMatchObject({ type: 'plain_text' });
    expect(slack.blocks[1].text.text).toContain('summary: Refund 60000 cents of "pay_<b>1"');
    await expect.poll(() => mail.mails.length, PATIENT).toBe(1);
    expect(mail.mails[0]).toMatchObject({ from: 'svc@example.com', to: ['maria@example.com', 'tom@example.com'] });
    const letter = mail.mails[0]?.text ?? '';
    expect(letter).toContain('Subject: [svc] A call waits for approval');
    expect(letter).toContain(`/approve/demo/${id}`);
    expect(letter).toMatch(/^Message-ID: <msg_[0-9a-f]{32}@/m);
    for (const said of [JSON.stringify(data), at(slackPath)[0]?.body, letter])
      expect(said).not.toContain('hidden-reason');
  });

  it('and its decision', async () => {
    const [{ data }] = told('approval.requested') as [WebhookReceiver['taken'][number]];
    await world.post(`/approvals/${data.approval_id}/reject`, {}, world.keys.approver);
    await expect
      .poll(() => told('approval.rejected').map((one) => one.data), PATIENT)
      .toMatchObject([{ approval_id: data.approval_id, user: 'maria' }]);
  });
});

describe('an outcome that is not known', () => {
  it('is told, and leads to the call', async () => {
    await world.upstream.mode({ mode: 'drop_after', times: 1 });
    const lost = await world.run(refund());
    expect(lost.body.decision).toBe('unknown_effect');
    await expect
      .poll(() => told('execution.lost').map(({ data }) => data.links.open), PATIENT)
      .toEqual([`${world.gateway.url}/console/demo/effects/${lost.body.effect_id}`]);
  });
});

describe('a budget near its limit', () => {
  it('is told once, from the share on that the configuration says', async () => {
    const spend = async (amount: number): Promise<void> => {
      expect((await world.run(refund({ amount }), world.keys.otherBot)).body.decision).toBe('committed');
    };
    await spend(44_000);
    await spend(2_000);
    const near = [{ budget: 'world/agent-day', limit: 100_000, spent: 46_000, workspace: 'demo' }];
    await expect.poll(() => told('budget.near_limit').map(({ data }) => data), PATIENT).toMatchObject(near);
    await spend(46_000);
    expect(told('budget.near_limit')).toHaveLength(1);
  });
});

describe('files that cannot be used', () => {
  it('are told', async () => {
    const file = join(world.gateway.policyFolder, 'world.yaml');
    const before = await readFile(file, 'utf8');
    await writeFile(file, 'rules: [');
    await expect.poll(() => told('policy.rejected').length, PATIENT).toBe(1);
    await writeFile(file, before);
    expect(told('policy.rejected')[0]?.data.links.open).toBe(`${world.gateway.url}/console`);
  });
});

describe('receivers', () => {
  it('that rotate their secret know either signature; redirects are not followed; private addresses are as for upstreams', async () => {
    await world.post('/pauses', { scope: { agent: 'other-bot' }, reason: 'a look at <https://evil.example>' });
    await expect.poll(() => rotating.taken.length, PATIENT).toBe(1);
    expect(rotating.unsigned).toEqual([]);
    await expect.poll(() => at('/moved').length, PATIENT).toBe(1);
    const [moved] = at('/moved');
    const signature = String(moved?.headers['webhook-signature']);
    expect(
      new Webhook(NOW).verify(moved?.body ?? '', { ...webhookHeaders(moved), 'webhook-signature': signature }),
    ).toBeTruthy();
    const list = async () =>
      (await send(world.gateway.url, world.gateway.administrativeKey, 'GET', '/v1/beta/notifications')).body
        .notifications;
    const failures = async (): Promise<unknown> =>
      Object.fromEntries(
        (await list())
          .filter(
            ({ receiver: name, event }: { receiver: string; event: string }) =>
              event === 'pause.set' && ['moved', 'gone', 'private', 'mail-foreign'].includes(name),
          )
          .map((one: { receiver: string; state: string; last_failure: string }) => [
            one.receiver,
            [one.state, one.last_failure],
          ]),
      );
    await expect.poll(failures, PATIENT).toEqual({
      moved: ['waiting', 'it answered 307: redirects are not followed'],
      gone: ['dead', 'it answered 410: it takes nothing more'],
      'mail-foreign': ['waiting', expect.stringContaining('the connection failed')],
      private: ['waiting', "the receiver's address is refused: it is a loopback address"],
    });
    expect(at('/stolen')).toEqual([]);
    await expect.poll(() => encrypted?.mails.length, PATIENT).toBe(1);
    await expect.poll(() => asking.mails.length, PATIENT).toBe(1);
    expect(foreign?.mails).toEqual([]);
    expect(at('/private')).toEqual([]);
    expect(at('/elsewhere')).toEqual([]);
  });

  it('that got nothing are seen in /readyz and by svc, and get it when somebody sends it again', async () => {
    const notes = async (): Promise<unknown> =>
      (await send(world.gateway.url, world.keys.account, 'GET', '/readyz')).body.notes?.filter(
        ({ part }: { part: string }) => part === 'notifications',
      );
    // One is dead; others wait for receivers that take nothing, and will for days.
    await expect
      .poll(notes, PATIENT)
      .toContainEqual({ part: 'notifications', message: expect.stringMatching(/^1 notification could not be/) });
    await expect.poll(notes, PATIENT).toContainEqual({
      part: 'notifications',
      since: expect.any(String),
      message: expect.stringMatching(
        /^Nobody is told by private: a notification was tried \d+ times, and not taken\. svc /,
      ),
    });
    const svc = (...words: readonly string[]) =>
      spawnSync(process.execPath, ['bin/svc.mjs', 'notifications', ...words, '--url', world.gateway.url], {
        encoding: 'utf8',
        env: { ...process.env, SVC_API_KEY: world.gateway.administrativeKey },
      });
    const listed = svc('list', '--state', 'dead', '--json');
    const [{ id, webhook_id: webhookId }] = JSON.parse(listed.stdout).notifications;
    const before = at('/gone').length;
    expect(svc('resend', id).status).toBe(0);
    await expect.poll(() => at('/gone').length, PATIENT).toBe(before + 1);
    expect(at('/gone').map(({ headers }) => headers['webhook-id'])).toEqual([webhookId, webhookId]);
    expect(svc('resend', 'dlv_none').status).toBe(1);
  });

  it('are no business of who runs agents', async () => {
    for (const key of [world.keys.account, world.keys.bot, world.keys.readonly])
      expect((await send(world.gateway.url, key, 'GET', '/v1/beta/notifications')).status).toBe(403);
  });

  it('and none of their addresses or secrets is in the log', () => {
    const log = world.gateway.log();
    expect(log).toContain('a notification could not be delivered');
    for (const hidden of ['/services/T0', 'p@ss', encodeURIComponent('p@ss'), NOW, BEFORE])
      expect(log).not.toContain(hidden);
  });
});

function webhookHeaders(one: Asked | undefined) {
  return {
    'webhook-id': String(one?.headers['webhook-id']),
    'webhook-timestamp': String(one?.headers['webhook-timestamp']),
  };
}
