import { type Static, Type } from 'typebox';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import { timeToWire } from '../effects/wire/time.ts';
import {
  type ApprovedCall,
  type OftenApproved,
  type SuggestedRule,
  type ApprovedGroup,
  oftenApproved,
} from '../policy/suggest.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, AnyObject, InWorkspace, List, record, Time } from './schema.ts';

/** How far back requests are looked at, ms, and how many. */
const LOOKED_BACK_MS = 30 * 24 * 60 * 60 * 1000;
const MOST_REQUESTS = 1_000;
const PAGE = 100;
/** A page may be empty though others follow. */
const MOST_PAGES = 50;
/** The most characters of sealed params that one answer opens. */
const MOST_OPENED = 512 * 1024;

const Suggestion = record(
  'PolicySuggestion',
  'A rule that would let run what people approved each time. Nothing comes of it by itself.',
  {
    rule: Type.String({ description: 'The rule that asks now.' }),
    tool: Type.String(),
    file: Type.String({ description: 'Where that rule stands.' }),
    line: Type.Integer(),
    text: Type.String({
      description:
        'YAML, to be put in the place of that rule. It loads, and lets each of these calls run; calls beyond what was seen are asked about as before.',
    }),
    agents: List(Type.String()),
    people: List(Type.String(), 'Who approved.'),
    since: Time,
    until: Time,
    approvals: List(
      Type.Object({
        approval_id: Type.String(),
        effect_id: Type.String(),
        agent_id: Type.String(),
        at: Time,
        by: List(Type.String()),
      }),
      'What it is drawn from, newest first.',
    ),
    example: Type.Object(
      { agent_id: Type.String(), params: AnyObject('Of the newest call.') },
      { description: 'To be tried.' },
    ),
  },
);

/** `GET …/policies/suggestions`: rules for what people approve time and again. */
export function addSuggestionRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const listPolicySuggestions = guarded('policies.suggest', {
    operationId: 'listPolicySuggestions',
    summary: 'Which rules would let run what people approved each time',
    description:
      'Of a tool and the one rule that asked about it: at least 5 approvals, no rejection, nothing changed, among the latest 1,000 requests of 30 days. Nothing is changed by it: people put the text into their files, and those in force.',
    params: InWorkspace,
    response: answers({ 200: Type.Object({ version: Type.String(), suggestions: List(Suggestion) }) }),
  });
  app.get('/v1/workspaces/:ws/policies/suggestions', listPolicySuggestions, async (request) => {
    const caller = callerOf(request);
    const { ws } = request.params;
    return lists.make(caller, () => suggestionsFor(ports, ws, caller.principal.allowedTools));
  });
}

async function suggestionsFor(ports: ApiPorts, workspace: string, allowedTools: readonly string[] | null) {
  const { set } = ports.policies();
  const digests = new Map(set.rules.map(({ id, approval }) => [id, approval?.ruleDigest ?? null]));
  const found = oftenApproved(await requestsOf(ports, workspace), (rule) => digests.get(rule) ?? null).filter(
    ({ tool }) => allowedTools === null || allowedTools.includes(tool),
  );
  const groups: OftenApproved[] = [];
  let left = MOST_OPENED;
  for (const group of found) {
    const { calls, opened } = await callsOf(ports, workspace, group, left);
    left -= opened;
    groups.push({ rule: group.rule, tool: group.tool, workspace, calls });
  }
  // Most of the time there is nothing, and no thread is begun for it.
  const suggested = groups.length === 0 ? [] : await ports.suggestRules(groups);
  if (suggested === null)
    throw refuse(
      'conflict',
      'No rule can be tried now: the policies in force are too large for the store, or the files of the gateway cannot be used.',
    );
  const lines = new Map(set.rules.map(({ id, position }) => [id, position.line]));
  const suggestions = suggested.map((one) => suggestionToWire(one, groups, lines.get(one.rule) ?? 0));
  return { version: set.version, suggestions };
}

/** The latest requests for approval, newest first. */
async function requestsOf({ store }: ApiPorts, workspace: string): Promise<readonly ApprovalRecord[]> {
  const from = store.now() - LOOKED_BACK_MS;
  const requests: ApprovalRecord[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const filter = { status: null, agentId: null, limit: PAGE, cursor };
    const page: Awaited<ReturnType<typeof store.approvals>> = await store.turns.run(() =>
      store.approvals(workspace, filter),
    );
    requests.push(...page.items.filter(({ createdAt }) => createdAt >= from));
    const isOver = page.items.some(({ createdAt }) => createdAt < from);
    if (isOver || page.next === null || requests.length >= MOST_REQUESTS) break;
    cursor = page.next;
  }
  return requests.slice(0, MOST_REQUESTS);
}

/** The calls of a group as policy sees them now. One whose params a rule may not name is left out. */
async function callsOf(
  ports: ApiPorts,
  workspace: string,
  { tool: name, approvals }: ApprovedGroup,
  most: number,
): Promise<{ readonly calls: readonly ApprovedCall[]; readonly opened: number }> {
  const { store, directory } = ports;
  const tool = ports.catalog().tool(name);
  const redacted = ports.policies().set.redacted(name);
  const calls: ApprovedCall[] = [];
  let opened = 0;
  for (const approval of approvals) {
    const agent = directory.agent(workspace, approval.requester.agentId);
    const effect = await store.turns.run(() => store.effect(workspace, approval.effectId));
    if (tool === null || agent === null || agent.disabled || effect === null || effect.sealed === null) continue;
    // The same name may stand for another action by now.
    if (effect.action.toolDigest !== tool.digest || opened + effect.sealed.length > most) continue;
    opened += effect.sealed.length;
    const read = ports.openParams(effect);
    // Rules bound params. What is sent on in headers they would not bound, and what is redacted they must not say.
    const hasHeaders = Object.keys(read?.headers?.bound ?? {}).length > 0;
    if (read === null || hasHeaders || Object.keys(read.params).some((param) => redacted.has(param))) continue;
    const { keyId, keyKind, user } = effect.actor;
    const {
      tool: _,
      entity: __,
      ...input
    } = ports.policyInput({
      agent,
      key: { id: keyId, kind: keyKind, profile: null, user },
      tool,
      workspace,
      target: effect.action.target,
      params: read.params,
      headers: {},
      requestIp: read.requestIp ?? null,
      now: store.now(),
    });
    const votes = approval.votes.filter(({ verdict }) => verdict === 'approve');
    const by = [...new Set(votes.map((vote) => vote.user))];
    calls.push({
      approvalId: approval.id,
      effectId: effect.id,
      by,
      at: approval.decidedAt ?? approval.createdAt,
      input,
    });
  }
  return { calls, opened };
}

function suggestionToWire(
  { rule, tool, file, text, calls: ids }: SuggestedRule,
  groups: readonly OftenApproved[],
  line: number,
): Static<typeof Suggestion> {
  const group = groups.find((one) => one.rule === rule && one.tool === tool);
  const calls = (group?.calls ?? []).filter(({ approvalId }) => ids.includes(approvalId));
  const times = calls.map(({ at }) => at);
  const [newest] = calls;
  return {
    rule,
    tool,
    file,
    line,
    text,
    agents: [...new Set(calls.map(({ input }) => input.agent.id))],
    people: [...new Set(calls.flatMap(({ by }) => by))],
    since: timeToWire(Math.min(...times)),
    until: timeToWire(Math.max(...times)),
    approvals: calls.map(({ approvalId, effectId, by, at, input }) => ({
      approval_id: approvalId,
      effect_id: effectId,
      agent_id: input.agent.id,
      at: timeToWire(at),
      by,
    })),
    example: { agent_id: newest?.input.agent.id ?? '', params: newest?.input.params ?? {} },
  };
}
