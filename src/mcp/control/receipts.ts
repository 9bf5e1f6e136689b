import { Type } from 'typebox';
import { type JsonObject, isJsonObject } from '../../json/value.ts';
import { verifyReceipt } from '../../receipts/verify.ts';
import type { ControlPorts } from './ports.ts';
import { AnyObject, args, Items, TextOrNull } from './schemas.ts';
import { answered, type ControlTool, defineTool, faulty } from './tool.ts';

/** Most characters of a receipt. Verifying reads them several times, all at once. */
const MAX_RECEIPT = 65_536;

const Verified = Type.Object({
  valid: Type.Boolean({ description: 'All that can be checked here holds.' }),
  verdict: Type.Enum(['VALID', 'INVALID', 'UNDECIDABLE']),
  key_id: TextOrNull('The key that signed it, where it is one of this gateway.'),
  effect_id: TextOrNull('The effect that it proves; null where the signature does not hold.'),
  log_proof: Type.Enum(['none', 'not_checked'], { description: 'Whether the receipt names a log that it stands in.' }),
  checks: Items('A check: its status, and why.'),
});

/** `svc.receipts.verify`. */
export function receiptTools(ports: ControlPorts): readonly ControlTool[] {
  return [
    defineTool({
      name: 'svc.receipts.verify',
      title: 'Verify a receipt',
      description:
        'Checks the signature and the form of a receipt with the keys of this gateway: a bare JWS, the view of a receipt, or an answer with one in it.',
      endpoint: 'mcp.traces',
      ofWorkspace: false,
      input: args({
        receipt: Type.Union([
          Type.String({ minLength: 1, maxLength: MAX_RECEIPT, description: 'A compact JWS, or JSON as text.' }),
          AnyObject('The view of a receipt, or an answer with one.'),
        ]),
      }),
      outputSchema: Verified,
      answer: async ({ receipt }) => {
        const content = typeof receipt === 'string' ? receipt : JSON.stringify(receipt);
        if (content.length > MAX_RECEIPT)
          return faulty('/receipt', `must not have more than ${MAX_RECEIPT} characters`);
        const { verdict, checks, payload, keyId } = verifyReceipt({
          content,
          trust: ports.receipts.jwks(),
          disclosure: null,
        });
        const failed = checks.filter(({ status }) => status === 'failed' || status === 'undecided');
        return answered(
          {
            valid: verdict === 'VALID',
            verdict,
            key_id: keyId,
            effect_id: effectIdOf(payload),
            log_proof: payload === null || (payload['log'] ?? null) === null ? 'none' : 'not_checked',
            checks: checks.map(({ name, status, detail }) => ({ name, status, detail })),
          },
          `${verdict}. ${failed.length === 0 ? 'Every check passed.' : failed.map(({ detail }) => detail).join(' ')}`,
        );
      },
    }),
  ];
}

function effectIdOf(payload: JsonObject | null): string | null {
  const effect = payload?.['effect'];
  const id = isJsonObject(effect) ? effect['id'] : null;
  return typeof id === 'string' ? id : null;
}
