import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';

/**
 * The JSON view of a receipt, as answers carry it: the payload, the JWS itself, and the proof that the log holds it
 * (`null` while there is no log). It is made from the stored bytes only: a duplicate shows the same as the first answer.
 * @param jws signed by this gateway; it is not verified here
 * @throws Error when it is no JWS with a JSON object in it
 */
export function receiptView(jws: string): JsonObject {
  const payload: Json = JSON.parse(Buffer.from(jws.split('.')[1] ?? '', 'base64url').toString('utf8'));
  if (!isJsonObject(payload)) throw new Error('The stored receipt is damaged: its payload is not a JSON object.');
  return { ...payload, jws };
}
