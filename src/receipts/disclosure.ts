import { canonicalJson } from '../json/canonical.ts';
import { type KeptResult, statusShown } from '../effects/model/answer.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { quote } from '../json/quote.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { jsonInSlices } from '../json/write.ts';
import { SALT_BYTES, SALTED_FIELDS, type SaltedField, type SealedParams } from '../effects/ports.ts';
import { commitmentIn } from './commitments.ts';

/**
 * What was sent: the params, the headers that are part of the action, the digest of the bytes (method, path and query,
 * body), the pin of the tool, and the key that the upstream got. The digest is absent where no gateway saw the request
 * being sent.
 */
export function requestContent(effect: EffectRecord, sealed: Sent, sent: string | undefined): JsonObject {
  const headers = boundHeaders(sealed);
  return { ...(headers === null ? {} : { headers }), params: sealed.params, ...besideParams(effect, sent) };
}

type Sent = Pick<SealedParams, 'params' | 'headers'>;

/**
 * The canonical form of {@link requestContent}. It reuses the text of the params, so that large params are serialised
 * once.
 */
export function requestText(effect: EffectRecord, sealed: Sent, params: string, sent: string | undefined): string {
  const headers = boundHeaders(sealed);
  // In the order of RFC 8785, `headers` and `params` come first.
  const first = headers === null ? '' : `"headers":${canonicalJson(headers)},`;
  const digest = sent === undefined ? '' : `"sent_sha256":${quote(sent)},`;
  const pin = quote(effect.action.toolDigest);
  return `{${first}"params":${params},${digest}"tool_pin":${pin},"upstream_key":"${effect.id}.${effect.generation}"}`;
}

function boundHeaders({ headers }: Sent): JsonObject | null {
  return headers === undefined || Object.keys(headers.bound).length === 0 ? null : headers.bound;
}

function besideParams({ action, id, generation }: EffectRecord, sent: string | undefined): JsonObject {
  return {
    ...(sent === undefined ? {} : { sent_sha256: sent }),
    tool_pin: action.toolDigest,
    upstream_key: `${id}.${generation}`,
  };
}

/** The members `upstream_status` (if answers of its kind have one) and `result` that answers show. */
export function responseContent(response: KeptResult): JsonObject {
  const status = statusShown(response);
  const result = response.body.value;
  return status === null ? { result } : { upstream_status: status, result };
}

/** Salts and values that open commitments, by the name of the field. */
export interface Disclosure extends JsonObject {
  readonly salts: JsonObject;
  readonly values: JsonObject;
}

/**
 * Opens the commitments of a receipt: gives the salts and values in the form that `svc verify --disclosure` takes. A
 * field stays closed when its value is no longer on record.
 * @param payload the payload of the receipt
 */
export function disclosureOf(effect: EffectRecord, sealed: SealedParams, payload: JsonObject): Disclosure {
  const { life } = effect;
  if (life.state !== 'committed') throw new TypeError('only committed effects have a receipt');
  const { settledBy, result, evidence } = life;
  const known: Readonly<Record<SaltedField, Json | null>> = {
    target: effect.action.target,
    params: sealed.params,
    idem: effect.idempotencyKey,
    request: requestContent(effect, sealed, evidence.sent),
    response: result === null || result.body.kind === 'sealed' ? null : responseContent(result),
    comment: settledBy.by === 'resolve' ? settledBy.comment : null,
    evidence: settledBy.by === 'resolve' || settledBy.by === 'probe' ? settledBy.evidence : null,
  };
  const salts: Record<string, string> = {};
  const values: Record<string, Json> = {};
  for (const [index, field] of SALTED_FIELDS.entries()) {
    const value = known[field];
    if (value === null || commitmentIn(payload, field) === null) continue;
    salts[field] = sealed.salts.toString('base64url', index * SALT_BYTES, (index + 1) * SALT_BYTES);
    values[field] = value;
  }
  return { salts, values };
}

/** A disclosure as `JSON.stringify` writes it. The params are in it twice, and are written once, in parts. */
export async function disclosureText({ salts, values }: Disclosure): Promise<string> {
  const { params } = values;
  const written = params === undefined ? '' : await textInSlices(params);
  const members: string[] = [];
  for (const [field, value] of Object.entries(values)) {
    const isRequest = field === 'request' && isJsonObject(value) && value['params'] === params;
    const text = value === params ? written : isRequest ? aroundParams(value, written) : await textInSlices(value);
    members.push(`${quote(field)}:${text}`);
  }
  return `{"salts":${JSON.stringify(salts)},"values":{${members.join(',')}}}`;
}

function aroundParams(request: JsonObject, params: string): string {
  const members = Object.entries(request).map(
    ([name, value]) => `${quote(name)}:${name === 'params' ? params : JSON.stringify(value)}`,
  );
  return `{${members.join(',')}}`;
}

async function textInSlices(value: Json): Promise<string> {
  return (await jsonInSlices(value)).toString('utf8');
}
