import { conditionFaults } from '../effects/checks/conditions.ts';
import { placeholderIn } from '../effects/checks/judge-probe.ts';
import type { Probe } from '../effects/model/tool.ts';
import { isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import { parseDuration } from './units.ts';

/** The param that stands for the key as the upstream got it. */
export const UPSTREAM_KEY = 'idempotency_key';

interface Asked {
  readonly entry: object;
  /** The names of the call's params; `null` where they are not known, or there may be others. */
  readonly names: ReadonlySet<string> | null;
  readonly isKeyed: boolean;
}

/** A probe, with its conditions checked. What is asked is resolved by the kind of the upstream. */
export function resolveProbe(
  probe: Omit<NonNullable<GatewayFile['tools'][number]['probe']>, 'request'>,
  { read, params }: Pick<Probe, 'read' | 'params'>,
  { entry, names, isKeyed }: Asked,
  judge: Judge,
): Probe {
  const { happened, not_happened: notHappened } = probe;
  const fault = (steps: readonly string[], message: string, hint: string | null = null): void =>
    judge.error('bad_probe', at(entry, 'probe', ...steps), [message, hint]);
  for (const [name, conditions] of Object.entries({ happened, not_happened: notHappened })) {
    for (const { message } of conditionFaults(conditions, '')) fault([name], `A condition of the probe: ${message}`);
    for (const condition of Object.values(conditions))
      if (isJsonObject(condition) && placeholderIn(condition['$regex'] ?? null) !== null)
        fault([name], 'What a caller sends is not read as a $regex', 'compare with {name} alone');
  }
  if (Object.keys({ ...happened, ...notHappened }).length === 0)
    fault([], 'The probe has no conditions, so it can show nothing', 'happened: { status: done }');
  const asks = placeholdersIn(params);
  const asksForKey = asks.has(UPSTREAM_KEY);
  if (asksForKey && !isKeyed)
    fault([], `The upstream gets no key with the call, so nothing can be found by {${UPSTREAM_KEY}}`, 'add idempotent');
  if (!asksForKey && !probe.accept_state_evidence)
    fault(
      [],
      'The probe shows that a state holds, and not that this call brought it about',
      `let its request carry {${UPSTREAM_KEY}}, or write accept_state_evidence: true`,
    );
  if (names !== null)
    for (const name of [...asks, ...placeholdersIn(happened), ...placeholdersIn(notHappened)])
      if (name !== UPSTREAM_KEY) judge.known('param', at(entry, 'probe'), name, names);
  const [everyMs = 0, afterMs = 0, forMs = 0] = [probe.every, probe.after, probe.for].map(
    (text) => parseDuration(text) ?? 0,
  );
  return { read, params, happened, notHappened, everyMs, afterMs, forMs };
}

function placeholdersIn(value: Json, found = new Set<string>()): ReadonlySet<string> {
  const name = placeholderIn(value);
  if (name !== null) found.add(name);
  const inside = isJsonArray(value) ? value : isJsonObject(value) ? Object.values<Json>(value) : [];
  for (const one of inside) placeholdersIn(one, found);
  return found;
}
