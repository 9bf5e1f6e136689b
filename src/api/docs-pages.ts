import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { FastifyReply } from 'fastify';
import { Marked } from 'marked';
import { CODES } from '../effects/model/codes.ts';
import { HOME } from '../home.ts';
import type { ApiApp } from './app.ts';
import { escapeHtml } from './approver/html.ts';
import { refuse } from './problem.ts';

const ERROR_PAGES = new URL('docs/errors/', HOME);

/** Nothing from any other host, no inline script, no frame. */
const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data: blob:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "worker-src 'self' blob:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const REFERENCE_PAGE = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>svc-gateway API</title></head>
<body><div id="app"><noscript>The same reference as JSON: <a href="/openapi.json">/openapi.json</a></noscript></div>
<script src="/docs/reference.js"></script><script src="/docs/start.js"></script></body>
</html>
`;

/** Turns off everything that would ask another host; the policy above would block it as well. */
const START_SCRIPT = `Scalar.createApiReference('#app', ${JSON.stringify({
  url: '/openapi.json',
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  persistAuth: false,
})});
`;

const marked = new Marked({
  renderer: {
    html: ({ text }) => escapeHtml(text),
    /** A sibling page `x.md` becomes the page `x`. Links with other schemes than https stay text. */
    link({ href, tokens }) {
      const label = this.parser.parseInline(tokens);
      const page = /^(?:\.\/)?([a-z0-9_]+)\.md$/.exec(href)?.[1];
      const to = page === undefined ? href : `/docs/errors/${page}`;
      return /^(?:https:\/\/|\/(?!\/)|#)/.test(to) ? `<a href="${escapeHtml(to)}">${label}</a>` : label;
    },
  },
});

/** Renders a page about codes as HTML, without HTML of its own. */
export function pageToHtml(markdown: string): string {
  return marked.parse(markdown, { async: false });
}

/**
 * `/docs`: the reference, which works offline, and a page for every code. Pages are read on each request and never
 * cached.
 */
export function addDocsPages(app: ApiApp): void {
  const own = { config: { page: true } } as const;
  // Whoever opens the printed address in a browser gets the documentation instead of a request for a key.
  app.get('/', own, async (_request, reply) => secured(reply).redirect('/docs', 302));
  for (const path of ['/docs', '/docs/'])
    app.get(path, own, async (_request, reply) => sendPage(reply, REFERENCE_PAGE));
  app.get('/docs/start.js', async (_request, reply) =>
    secured(reply).type('text/javascript; charset=utf-8').send(START_SCRIPT),
  );
  app.get('/docs/reference.js', async (_request, reply) => {
    const file = referenceScript();
    const { size } = await stat(file);
    return secured(reply)
      .type('text/javascript; charset=utf-8')
      .header('content-length', size)
      .header('cache-control', 'public, max-age=3600')
      .send(createReadStream(file));
  });

  for (const path of ['/docs/errors', '/docs/errors/'])
    app.get(path, own, async (_request, reply) => sendPage(reply, page('Codes', pageToHtml(await indexOfCodes()))));
  app.get<{ Params: { code: string } }>('/docs/errors/:code', own, async (request, reply) => {
    const { code } = request.params;
    if (!Object.hasOwn(CODES, code)) throw refuse('not_found', 'There is no such code.');
    const text = await pageOf(code);
    reply.header('vary', 'accept');
    if (/\btext\/markdown\b/i.test(request.headers.accept ?? ''))
      return secured(reply).type('text/markdown; charset=utf-8').send(text);
    return sendPage(reply, page(code, pageToHtml(text)));
  });
}

/** The script of the reference. The build copies it beside this file; the sources take it from where it is installed. */
function referenceScript(): URL {
  return import.meta.url.endsWith('.js')
    ? new URL('reference.js', import.meta.url)
    : new URL('js/standalone.js', import.meta.resolve('@scalar/fastify-api-reference'));
}

/** The table of all codes, or just their titles if the installation has no pages. */
async function indexOfCodes(): Promise<string> {
  try {
    return await readFile(fileURLToPath(new URL('README.md', ERROR_PAGES)), 'utf8');
  } catch {
    const rows = Object.entries(CODES).map(([code, { title }]) => `- [\`${code}\`](/docs/errors/${code}) ${title}`);
    return `# Codes\n\n${rows.join('\n')}\n`;
  }
}

/** The page of a code, or just its title if the installation has no pages. */
async function pageOf(code: string): Promise<string> {
  const title = Object.entries(CODES).find(([name]) => name === code)?.[1].title ?? code;
  try {
    return await readFile(fileURLToPath(new URL(`${code}.md`, ERROR_PAGES)), 'utf8');
  } catch {
    return `# ${code}\n\n${title}.\n`;
  }
}

function page(title: string, content: string): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title} · svc-gateway</title>
<style>:root{color-scheme:light dark}body{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}pre{overflow:auto;padding:.75rem;border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:6px}code{font-size:.92em}table{border-collapse:collapse}td,th{border:1px solid color-mix(in srgb,currentColor 25%,transparent);padding:.3rem .6rem;text-align:left}</style></head>
<body><main>${content}</main><footer><a href="/docs/errors">All codes</a> · <a href="/docs">API reference</a></footer></body>
</html>
`;
}

function sendPage(reply: FastifyReply, html: string): FastifyReply {
  return secured(reply).type('text/html; charset=utf-8').send(html);
}

function secured(reply: FastifyReply): FastifyReply {
  return reply.headers({
    'content-security-policy': CSP,
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
  });
}
