import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { AllowAlike, ApprovalRequirement } from '../effects/model/verdict.ts';
import { compileEditable } from './editable.ts';
import { below, type Reporter } from './reporter.ts';
import type { ApprovalPlan } from './rule-plan.ts';
import { comesSoon, type SchedulePlan } from './schedules.ts';
import type { ApprovalSource } from './schema-approval.ts';
import type { SetContext, Surroundings } from './set-context.ts';
import { parseTemplate } from './template.ts';
import { readDuration } from './windows.ts';

const DEFAULT_EXPIRES = '24h';

/** Checks who must approve. Roles must exist: nobody would have a misspelt one. */
export function compileApproval(
  source: ApprovalSource,
  path: DataPath,
  context: SetContext,
): Omit<ApprovalPlan, 'ruleDigest'> | null {
  const { report, surroundings } = context;
  const { roles = [], users = [] } = source.approvers;
  const { escalate: later } = source;
  let sound = hasRoles(source.approvers, [...path, 'approvers'], surroundings, report);
  if (later !== undefined) sound = hasRoles(later.to, [...path, 'escalate', 'to'], surroundings, report) && sound;
  const named = new Set([...users, ...(later?.to.users ?? [])]);
  if (roles.length + (later?.to.roles ?? []).length === 0 && named.size < (source.quorum ?? 1)) {
    sound = false;
    report.error(
      'wrong_value',
      below(path, 'quorum'),
      `A quorum of ${source.quorum} cannot be reached by ${named.size} users`,
    );
  }
  if (sound) warnOfTooFew(source, path, surroundings.rolesOf, report);
  const summary =
    source.summary === undefined ? null : parseTemplate(source.summary, [...path, 'summary'], report, 'people');
  const expiresMs = readDuration(source.expires ?? DEFAULT_EXPIRES, [...path, 'expires'], report);
  const hours =
    source.hours === undefined ? undefined : scheduleOf(source.hours, expiresMs, [...path, 'hours'], context);
  const editable =
    source.editable === undefined ? undefined : compileEditable(source.editable, [...path, 'editable'], report);
  const allowAlike =
    source.allow_alike === undefined ? undefined : compileAllowAlike(source, source.allow_alike, path, report);
  const escalate = later === undefined ? undefined : compileEscalation(later, expiresMs, [...path, 'escalate'], report);
  if (!sound || expiresMs === null || editable === null || (summary === null && source.summary !== undefined))
    return null;
  if (allowAlike === null || escalate === null || hours === null) return null;
  return {
    approvers: { roles, users },
    quorum: source.quorum ?? 1,
    expiresMs,
    summary,
    hold: source.hold ?? 'own',
    ...(editable === undefined ? null : { editable }),
    ...(source.require_reason === true ? { requireReason: true } : null),
    ...(allowAlike === undefined ? null : { allowAlike }),
    ...(escalate === undefined ? null : { escalate }),
    ...(hours === undefined ? null : { hours }),
  };
}

/** The hours that count. @returns `null` where they are faulty (reported) */
function scheduleOf(
  name: string,
  expiresMs: number | null,
  path: DataPath,
  { schedules, report }: SetContext,
): SchedulePlan | null {
  const schedule = schedules.get(name);
  if (schedule === undefined)
    report.error('unknown_name', path, [`There is no schedule '${name}'`, didYouMean(name, schedules.keys())]);
  if (schedule == null || expiresMs === null || comesSoon(schedule, expiresMs)) return schedule ?? null;
  report.error('wrong_value', path, `So much time of '${name}' takes longer than half a year: the request must end`);
  return null;
}

/** Whether all roles are somebody's. */
function hasRoles(
  { roles = [] }: ApprovalSource['approvers'],
  path: DataPath,
  surroundings: Surroundings,
  report: Reporter,
): boolean {
  let sound = true;
  for (const [index, role] of roles.entries())
    if (!surroundings.roles.includes(role)) {
      sound = false;
      report.error('unknown_role', below(path, 'roles', index), [
        `No user has the role '${role}': nobody could approve`,
        didYouMean(role, surroundings.roles) ?? "give it to a user under 'users' in the configuration",
      ]);
    }
  return sound;
}

/**
 * Who is asked besides, and after how long. It only adds people: who asked first may still decide.
 * @returns `null` where it is faulty (reported)
 */
function compileEscalation(
  { after, to: { roles = [], users = [] } }: NonNullable<ApprovalSource['escalate']>,
  expiresMs: number | null,
  path: DataPath,
  report: Reporter,
): NonNullable<ApprovalRequirement['escalate']> | null {
  const afterMs = readDuration(after, [...path, 'after'], report);
  if (afterMs === null || expiresMs === null) return null;
  if (afterMs < expiresMs) return { afterMs, to: { roles, users } };
  report.error('wrong_value', below(path, 'after'), `After '${after}' the request has expired: nobody would be asked`);
  return null;
}

/** The longest time for which calls may be allowed ahead. */
const LONGEST_ALIKE_MS = 24 * 60 * 60 * 1000;

/**
 * How far one person may allow the next calls alike. Where several have to agree to each call, nobody may do so alone.
 * @returns `null` where it is faulty (reported)
 */
function compileAllowAlike(
  { quorum = 1 }: ApprovalSource,
  { times, for: duration }: NonNullable<ApprovalSource['allow_alike']>,
  path: DataPath,
  report: Reporter,
): AllowAlike | null {
  const place = [...path, 'allow_alike'];
  const forMs = readDuration(duration, [...place, 'for'], report);
  if (quorum > 1)
    report.error('wrong_value', place, [
      `A quorum of ${quorum} asks several people for each call: one of them cannot allow the next ones`,
      'remove allow_alike, or ask one person',
    ]);
  if (forMs !== null && forMs > LONGEST_ALIKE_MS)
    report.error('wrong_value', below(place, 'for'), `'${duration}' is longer than 24h`);
  return quorum > 1 || forMs === null || forMs > LONGEST_ALIKE_MS ? null : { times, forMs };
}

/**
 * Warns where a call could wait in vain: nobody has a declared role, a user is misspelt, or too few people could
 * approve.
 */
function warnOfTooFew(
  { approvers, escalate, quorum = 1 }: ApprovalSource,
  path: DataPath,
  rolesOf: ReadonlyMap<string, readonly string[]>,
  report: Reporter,
): void {
  const able = new Set<string>();
  const places = [
    [approvers, ['approvers']] as const,
    ...(escalate === undefined ? [] : [[escalate.to, ['escalate', 'to']] as const]),
  ];
  for (const [{ roles = [], users = [] }, place] of places) {
    for (const [index, user] of users.entries())
      if (!rolesOf.has(user))
        report.warning('unknown_user', below(path, ...place, 'users', index), [
          `The configuration names no user '${user}'`,
          didYouMean(user, rolesOf.keys()) ?? "declare it under 'users'; keys can be made for it all the same",
        ]);
    for (const user of users) able.add(user);
    for (const [user, held] of rolesOf) if (roles.some((role) => held.includes(role))) able.add(user);
  }
  if (able.size >= quorum) return;
  const who = able.size === 0 ? 'No user' : `Only ${[...able].join(', ')}`;
  report.warning(
    'too_few_approvers',
    below(path, 'approvers'),
    [
      `${who} could approve, and ${quorum} ${quorum === 1 ? 'has' : 'have'} to: the call would wait in vain`,
      "give the role to more users under 'users' in the configuration",
    ],
    'key',
  );
}
