import { type Json, isJsonArray, isJsonObject } from './value.ts';

/** About the length of a value as JSON; stops counting once it is above `most`. */
export function sizeUpTo(value: Json, most: number): number {
  if (typeof value === 'string') return value.length > most ? value.length : JSON.stringify(value).length;
  if (isJsonArray(value)) {
    let size = value.length === 0 ? 2 : 1;
    for (const element of value) {
      size += 1 + sizeUpTo(element, most - size);
      if (size > most) break;
    }
    return size;
  }
  if (isJsonObject(value)) {
    const names = Object.keys(value);
    let size = names.length === 0 ? 2 : 1;
    for (const name of names) {
      size += 2 + sizeUpTo(name, most - size) + sizeUpTo(value[name] ?? null, most - size);
      if (size > most) break;
    }
    return size;
  }
  return String(value).length;
}
