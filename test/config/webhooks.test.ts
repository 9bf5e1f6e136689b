import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';
import { isLoopback } from '../../src/config/resolve-webhooks.ts';
import { NOTIFICATION_EVENTS, type Receiver } from '../../src/effects/model/notification.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-webhooks-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function written(yaml: string): string {
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, yaml);
  return file;
}

const SECRET = Buffer.alloc(24, 1).toString('base64');
const OTHER = Buffer.alloc(64, 2).toString('base64');
const ENVIRONMENT = { SECRET: `whsec_${SECRET}`, OTHER: `whsec_${OTHER}` };

async function receivers(...webhooks: readonly string[]): Promise<readonly Receiver[]> {
  const file = written(`webhooks:\n${webhooks.map((one) => `  - ${one}\n`).join('')}`);
  return (await loadConfiguration(file, { environment: ENVIRONMENT })).configuration.webhooks;
}

it.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['localhost', true],
  ['[::1]', true],
  ['127.mail.example', false],
  ['127.0.0.1.mail.example', false],
  ['10.0.0.1', false],
])('what goes in clear to %s stays on this machine: %s', (host, stays) => {
  expect(isLoopback(host)).toBe(stays);
});

it('credentials that go in clear to another machine are warned of, whatever it is called', async () => {
  const warned = async (host: string) => {
    const file = written(
      `upstreams: [{ id: a, url: "http://${host}", credentials: { header: x, value: "\${HOME:-x}" } }]\n` +
        `webhooks: [{ url: "http://${host}/x", format: slack }]\n`,
    );
    return (await checkConfiguration(file)).findings.map(({ code }) => code);
  };
  for (const host of ['127.0.0.1:1', 'localhost', '[::1]:1']) expect([host, await warned(host)]).toEqual([host, []]);
  for (const host of ['127.mail.example', '10.0.0.1'])
    expect([host, await warned(host)]).toEqual([host, ['plain_http', 'plain_http']]);
});

describe('a receiver', () => {
  it('is told everything of every workspace, for three days, where nothing is said', async () => {
    const [one] = await receivers(`{ url: "https://hooks.example/x", secret: "\${SECRET}" }`);
    expect(one).toMatchObject({
      name: 'hooks.example',
      format: 'standard',
      url: 'https://hooks.example/x',
      network: 'any',
      events: NOTIFICATION_EVENTS,
      workspaces: null,
      secrets: [SECRET],
      retryFirstMs: 5_000,
      retryForMs: 3 * 86_400_000,
    });
  });

  it('is told of those events and those workspaces that it names, and of no others', async () => {
    const [one] = await receivers(
      `{ url: "https://hooks.example/x", secret: "\${SECRET}", events: [pause.set], workspaces: [demo], network: public }`,
    );
    expect(one).toMatchObject({ events: ['pause.set'], workspaces: ['demo'], network: 'public' });
  });

  it('keeps what waits for it by its name, whatever its address and secret are', async () => {
    const id = async (webhook: string) => (await receivers(webhook))[0]?.id;
    const first = await id(`{ name: ops, url: "https://a.example/x", secret: "${SECRET}" }`);
    expect(first).toMatch(/^[0-9a-f]{16}$/);
    expect(await id(`{ name: ops, format: slack, url: "https://b.example/y" }`)).toBe(first);
    expect(await id(`{ name: other, url: "https://a.example/x", secret: "${SECRET}" }`)).not.toBe(first);
  });

  it('is named by its host where it has no name, whatever the port: a second one there needs a name', async () => {
    const of = (port: string) => `url: "https://hooks.example${port}/x", secret: "\${SECRET}"`;
    const [one] = await receivers(`{ ${of('')} }`);
    const [other] = await receivers(`{ ${of(':8443')} }`);
    expect([other?.name, other?.id]).toEqual(['hooks.example', one?.id]);
    expect(await receivers(`{ ${of('')} }\n  - { ${of(':8443')}, name: second }`)).toHaveLength(2);
  });

  it('is signed for by the secret of now first, and then by the one before', async () => {
    const [one] = await receivers(`{ url: "https://a.example", secret: "\${SECRET}", previous_secret: "\${OTHER}" }`);
    expect(one).toMatchObject({ secrets: [SECRET, OTHER] });
  });

  it.each([
    [
      'smtps://u%40x:p%3Aq@mail.example',
      { host: 'mail.example', port: 465, tls: 'implicit', user: 'u@x', password: 'p:q' },
    ],
    ['smtp://mail.example', { host: 'mail.example', port: 587, tls: 'required', user: '', password: '' }],
    ['smtp://mail.example:2525', { host: 'mail.example', port: 2525, tls: 'required' }],
    ['smtp://127.0.0.1:2525', { host: '127.0.0.1', port: 2525, tls: 'none' }],
    ['smtp://127.mail.example', { host: '127.mail.example', port: 587, tls: 'required' }],
    ['smtps://[::1]', { host: '::1', port: 465, tls: 'implicit' }],
  ])('by mail over %s goes in clear to this machine alone', async (url, server) => {
    const [one] = await receivers(`{ format: mail, url: "${url}", from: "a@x.example", to: ["b@x.example"] }`);
    expect(one).toMatchObject({ format: 'mail', server, from: 'a@x.example', to: ['b@x.example'] });
  });

  it.each([
    ['23 bytes', `secret: "${Buffer.alloc(23, 1).toString('base64')}"`, 'bad_secret'],
    ['65 bytes', `secret: "${Buffer.alloc(65, 1).toString('base64')}"`, 'bad_secret'],
    ['what is no Base64', `secret: "${SECRET.slice(0, -1)}*"`, 'bad_secret'],
    ['what is Base64 but for what follows it', `secret: "${SECRET}*"`, 'bad_secret'],
    ['64 bytes', `secret: "${Buffer.alloc(64, 1).toString('base64')}"`, null],
  ])('that signs by %s is judged by that', async (_, secret, code) => {
    const file = written(`webhooks: [ { url: "https://a.example", ${secret} } ]\n`);
    const codes = (await checkConfiguration(file)).findings.filter(({ severity }) => severity === 'error');
    expect(codes.map((one) => one.code)).toEqual(code === null ? [] : [code]);
  });

  it('is one of twenty, and a mail has fifty recipients, at most', async () => {
    const codes = async (yaml: string) =>
      (await checkConfiguration(written(yaml))).findings
        .filter(({ severity }) => severity === 'error')
        .map(({ code }) => code);
    const many = (count: number) =>
      `webhooks:\n${Array.from({ length: count }, (_, n) => `  - { name: w${n}, format: slack, url: "https://a.example" }\n`).join('')}`;
    expect(await codes(many(20))).toEqual([]);
    expect(await codes(many(21))).toEqual(['too_many']);
    const mail = (count: number) =>
      `webhooks: [ { format: mail, url: "smtps://m.example", from: "a@x.example", to: [${Array.from({ length: count }, (_, n) => `"u${n}@x.example"`).join(', ')}] } ]\n`;
    expect(await codes(mail(50))).toEqual([]);
    expect(await codes(mail(51))).toEqual(['missing_field']);
    expect(await codes(mail(0))).toEqual(['missing_field']);
  });

  it('has a name of its own, whatever its case', async () => {
    const one = '{ name: ops, format: slack, url: "https://a.example" }';
    const two = '{ format: slack, url: "https://ops" }';
    const report = await checkConfiguration(written(`webhooks: [ ${one}, ${two} ]\n`));
    expect(report.findings.map(({ code }) => code)).toEqual(['duplicate_webhook']);
  });
});
