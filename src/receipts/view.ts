import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';

/**
 * The JSON view of a receipt, as answers carry it: the members of the payload, and the JWS itself. It is made from the
 * stored bytes only, so a duplicate shows the same as the first answer.
 * @param jws signed by this gateway; it is not verified here
 * @throws Error when the payload of the JWS is not a JSON object
 */
export function receiptView(jws: string): JsonObject {
  const payload: Json = JSON.parse(Buffer.from(jws.split('.')[1] ?? '', 'base64url').toString('utf8'));
  if (!isJsonObject(payload)) throw new Error('The stored receipt is damaged: its payload is not a JSON object.');
  return { ...payload, jws };
}
