import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Agreement } from '../../src/gateway/files-in-force.ts';
import { readFiles } from '../../src/gateway/in-force.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-agreement-'));
afterAll(() => rmSync(folder, { recursive: true }));

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: s
owner: team-test
rules: [ { id: r, effect: allow, match: { tools: [up.note] } } ]
`;

it('names each gateway that has other policies or another configuration in force, and none that has the same', async () => {
  writeFileSync(join(folder, 'policy.yaml'), POLICY);
  writeFileSync(
    join(folder, 'gateway.yaml'),
    `
store: { kind: embedded, path: "${folder}/data" }
policies: { paths: ["${folder}/policy.yaml"] }
upstreams: [ { id: up, url: "http://127.0.0.1:1" } ]
tools: [ { name: up.note, title: Note, upstream: up, kind: write, request: { method: POST, path: /v1/notes } } ]
`,
  );
  const inForce = await readFiles(join(folder, 'gateway.yaml'), {});
  const same = { policies: inForce.policies.version, configuration: inForce.configuration.sharedDigest };
  const others = new Map([['gw-same', same]]);
  const announced: unknown[] = [];
  const fleet = { announce: (digests: typeof same) => void announced.push(digests), others: () => others };
  const agreement = new Agreement(fleet, () => inForce);
  agreement.announce(inForce);
  expect(announced).toEqual([same]);
  expect(agreement.notes()).toEqual([]);
  others.set('gw-rules', { ...same, policies: 'another' });
  others.set('gw-files', { ...same, configuration: 'another' });
  expect(agreement.notes()).toEqual([
    { part: 'policies', message: 'gw-rules has other policies than this gateway.' },
    { part: 'configuration', message: 'gw-files has another configuration than this gateway.' },
  ]);
  expect(new Agreement(null, () => inForce).notes()).toEqual([]);
});

it('says where the policy files here are not in force, or cannot be', async () => {
  const inForce = await readFiles(join(folder, 'gateway.yaml'), {});
  const noted = (version: string | null) =>
    new Agreement(null, () => ({ ...inForce, own: { ...inForce.own, version } })).notes().map(({ message }) => message);
  expect(noted(inForce.policies.version)).toEqual([]);
  expect(noted('another')).toEqual([expect.stringContaining('(version another) are not in force')]);
  const said = (isOfTwo: boolean) =>
    new Agreement(null, () => ({ ...inForce, own: { ...inForce.own, version: 'another' } }), isOfTwo).notes()[0]
      ?.message;
  expect(said(false)).toContain('svc policy activate puts the files here in force');
  // Where two people have to stand behind policies, it only proposes.
  expect(said(true)).toContain('svc policy activate proposes the files here');
  expect(noted(null)).toEqual([expect.stringContaining('cannot be used, and are not in force')]);
});
