import type { RunResult } from '../effects/model/outcome.ts';
import { type AnswerContext, outcomeAnswer, type ProxyAnswer } from './answer.ts';
import { isJson, LinksUnreadable, rewriteLinks } from './json-links.ts';
import { type LinkContext, ownField } from './links.ts';

/** Headers about the exact bytes of a body: they do not hold of one that was rewritten. */
export const OF_THE_BYTES: readonly string[] = [
  'accept-ranges',
  'content-digest',
  'content-length',
  'content-md5',
  'digest',
  'repr-digest',
];

/** Makes addresses in fields of an answer the gateway's own. */
export function ownFields(context: LinkContext): (address: string) => string {
  return (address) => ownField(address, context);
}

/**
 * The answer to a governed call, with the links in its JSON leading to the gateway. Where they cannot be read, the
 * caller gets the decision instead: the action may have happened, and nobody knows where the links lead.
 */
export function linkedAnswer(
  ports: Parameters<typeof outcomeAnswer>[0],
  result: RunResult,
  context: AnswerContext,
): ProxyAnswer | Promise<ProxyAnswer> {
  const answer = outcomeAnswer(ports, result, context);
  return context.links.length === 0 || answer.isUpstreams === undefined || !isJson(answer.headers['content-type'])
    ? answer
    : withOwnLinks(ports, result, context, answer);
}

async function withOwnLinks(
  ports: Parameters<typeof outcomeAnswer>[0],
  result: RunResult,
  context: AnswerContext,
  answer: ProxyAnswer,
): Promise<ProxyAnswer> {
  const { headers, body } = answer;
  try {
    const coding = String(headers['content-encoding'] ?? 'identity').toLowerCase();
    if (coding !== 'identity') throw new LinksUnreadable('it is compressed');
    const upstreamUrl = ports.upstream(context.upstream)?.url ?? '';
    const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body;
    const rewritten = await rewriteLinks(bytes, context.links, ownFields({ ...context, upstreamUrl }));
    const kept = Object.entries(headers).filter(([name]) => !OF_THE_BYTES.includes(name));
    return { ...answer, headers: Object.fromEntries(kept), body: rewritten };
  } catch (error) {
    if (!(error instanceof LinksUnreadable)) throw error;
    return outcomeAnswer(ports, withoutAnswer(result), { ...context, onDuplicate: 'conflict' });
  }
}

function withoutAnswer(result: RunResult): RunResult {
  if (result.kind !== 'outcome') return result;
  const { outcome } = result;
  return outcome.decision === 'committed' || outcome.decision === 'failed'
    ? { kind: 'outcome', outcome: { ...outcome, answer: null } }
    : result;
}
