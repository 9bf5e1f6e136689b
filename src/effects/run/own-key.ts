import { type Json, isJsonArray, isJsonObject } from '../../json/value.ts';

/**
 * Whether a text in a value contains the key that the call was made with. The key must not be sent to an upstream, and
 * must not be kept.
 * @param keyId `key_` and the key's handle, which the key itself contains before its secret
 */
export function holdsOwnKey(value: Json, keyId: string): boolean {
  const id = keyId.slice('key_'.length);
  return id !== '' && holds(value, `_${id}`);
}

function holds(value: Json, mark: string): boolean {
  if (typeof value === 'string') return value.includes(mark) && textHolds(value, mark);
  if (isJsonArray(value)) {
    for (const element of value) if (holds(element, mark)) return true;
    return false;
  }
  if (!isJsonObject(value)) return false;
  for (const name of Object.keys(value)) {
    const member = value[name];
    if (name.includes(mark) && textHolds(name, mark)) return true;
    // No call for each of the texts and numbers that most members are.
    if (typeof member === 'string' && !member.includes(mark)) continue;
    if (member !== undefined && typeof member !== 'number' && holds(member, mark)) return true;
  }
  return false;
}

function textHolds(text: string, mark: string): boolean {
  for (let at = text.indexOf(mark); at !== -1; at = text.indexOf(mark, at + 1)) {
    // The id alone (`key_…`) is not secret. In a key, the secret follows it.
    if (/svc_[a-z]+$/.test(text.slice(Math.max(0, at - 12), at)) && /^[0-9A-Za-z]/.test(text.slice(at + mark.length)))
      return true;
  }
  return false;
}
