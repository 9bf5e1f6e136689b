/** How much is at stake in a write, with the words that tools use. */
export type Risk = 'low' | 'medium' | 'high' | 'critical';

export const RISKS: readonly Risk[] = ['low', 'medium', 'high', 'critical'];

/** Words of operations that move money. */
const MONEY =
  /^(refund|payout|transfer|charge|capture|withdraw|withdrawal|disburse|disbursement|wire|topup|payment|payments|debit)s?$/;
/** Words of operations on which much else depends. */
const GROUND =
  /^(account|org|organization|organisation|tenant|workspace|project|repo|repository|database|cluster|namespace|customer|user|bucket)s?$/;
/** Words of operations that cannot be undone, or that let others in. */
const GRAVE =
  /^(delete|destroy|remove|purge|erase|revoke|cancel|terminate|suspend|deactivate|disable|reset|rotate|merge|deploy|deployment|publish|permission|role|member|collaborator|admin|credential|secret|token|password|apikey|key|webhook|hook|invite|invitation)s?$/;
/** Words of operations that are writes only by their method. */
const HARMLESS =
  /^(search|query|preview|validate|verify|check|estimate|calculate|lookup|simulate|render|dry|dryrun|find)$/;

/** A first guess from the words of an operation; people should correct it. */
export function riskOf(method: string, path: string, id: string): Risk {
  const literals = path.split('/').filter((segment) => !segment.includes('{'));
  const words = [...literals, id].flatMap((text) =>
    text
      .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
      .toLowerCase()
      .split(/[^a-z0-9]+/),
  );
  const hasWord = (form: RegExp): boolean => words.some((one) => form.test(one));
  if (method === 'DELETE') {
    const last = literals.at(-1)?.toLowerCase() ?? '';
    return GROUND.test(last) || hasWord(MONEY) ? 'critical' : 'high';
  }
  if (method === 'POST' && hasWord(HARMLESS) && !hasWord(GRAVE)) return 'low';
  if (hasWord(MONEY)) return 'critical';
  return hasWord(GRAVE) ? 'high' : 'medium';
}
