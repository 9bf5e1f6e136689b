import { pathParams } from '../../../src/effects/model/tool.ts';
import { quoted } from './head.ts';
import type { DraftTool } from './openapi/draft.ts';
import { isTreeMap } from './openapi/params-schema.ts';

/** The most members of a body that are compared. */
const MOST_COMPARED = 8;

/** What stands before the tools where any has a proposal. */
export const ABOUT_PROBES: readonly string[] = [
  '  # probe: a read that shows, after an answer was lost, that what a call was to do is so: what it deletes is gone, what it',
  '  # puts is there. It does not show that this call did it, and that something is not so (yet) shows nothing at all: none of',
  '  # them concludes that a call did not happen. Take the # away where that is enough for you.',
];

/** The reads of a document that need nothing but what their path names. */
export function plainReads(tools: readonly DraftTool[]): ReadonlySet<string> {
  return new Set(
    tools
      .filter(({ method, path, schema: { required } }) => {
        const names = pathParams(path);
        return (
          method === 'GET' &&
          (!Array.isArray(required) || required.every((name) => typeof name === 'string' && names.includes(name)))
        );
      })
      .map(shapeOf),
  );
}

/**
 * The probe that a document suggests for a write: the read of the same path. A line of the configuration, as a comment,
 * because it needs somebody who accepts what it shows. Only what the write leaves behind is a condition; nothing is
 * ever concluded from what is not there (yet).
 */
export function probeProposal(tool: DraftTool, reads: ReadonlySet<string>): readonly string[] {
  if (tool.encodedSlashes.length > 0 || tool.path.includes('{+') || !reads.has(shapeOf(tool))) return [];
  const names = pathParams(tool.path);
  const properties = isTreeMap(tool.schema['properties']) ? Object.keys(tool.schema['properties']) : [];
  if (names.length === 0 || properties.includes('idempotency_key')) return [];
  const happened = conditionsOf(tool, properties, names);
  if (happened === null) return [];
  const request = `{ method: GET, path: ${quoted(tool.path)} }`;
  return [`    # probe: { request: ${request}, happened: { ${happened} }, accept_state_evidence: true }`];
}

function conditionsOf(tool: DraftTool, properties: readonly string[], inPath: readonly string[]): string | null {
  if (tool.method === 'DELETE') return 'http_status: { $in: [404, 410] }';
  if (tool.method !== 'PUT') return null;
  // What the read shows without a body of its own: membership, a star, a lock.
  if (tool.body === null) return 'http_status: { $in: [200, 204] }';
  const { required } = tool.schema;
  const isNeeded = (name: string): boolean => Array.isArray(required) && required.includes(name);
  const members = properties.filter((name) => !inPath.includes(name));
  const isWhole =
    tool.body.as === 'members' &&
    tool.body.type === 'json' &&
    tool.query.length === 0 &&
    tool.headers.length === 0 &&
    members.length > 0 &&
    members.length <= MOST_COMPARED &&
    members.every((name) => isNeeded(name) && /^[A-Za-z]\w*$/.test(name) && name !== 'http_status');
  // With some of the members left out, an older state could be taken for the new one.
  return isWhole ? members.map((name) => `${name}: ${quoted(`{${name}}`)}`).join(', ') : null;
}

function shapeOf({ upstream, path }: DraftTool): string {
  return `${upstream} ${path.replaceAll(/\{[^{}]*\}/g, '{}')}`;
}
