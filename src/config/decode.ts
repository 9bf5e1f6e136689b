import type { TObject } from 'typebox';
import { type Duration, parseDuration, parseSize, type Size } from './units.ts';

type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : Name;

type Unit<Value> = [Extract<Value, Duration>] extends [never]
  ? [Extract<Value, Size>] extends [never]
    ? ''
    : 'Bytes'
  : 'Ms';

/** A word in place of a duration, such as `forever`, is `null`. */
type DecodedValue<Value> =
  Unit<Value> extends '' ? Value : [Exclude<Value, Duration | Size>] extends [never] ? number : number | null;

/** The settings of a section as the code has them: `max_freeze: 10m` is `maxFreezeMs: 600000`. */
export type Decoded<Section> = {
  readonly [Name in keyof Section & string as `${CamelCase<Name>}${Unit<Section[Name]>}`]: DecodedValue<Section[Name]>;
};

/** Decodes a section whose settings need nothing looked up: names and units follow from its schema. */
export function decode<Section extends object>(schema: TObject, section: Section): Decoded<Section> {
  const entries = Object.entries(section).map(([name, value]: [string, unknown]) => {
    const field: object = schema.properties[name] ?? {};
    const camelCase = name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
    if ('x-duration' in field) return [`${camelCase}Ms`, parseDuration(String(value))];
    if ('x-size' in field) return [`${camelCase}Bytes`, parseSize(String(value))];
    return [camelCase, value];
  });
  return Object.fromEntries(entries) as Decoded<Section>;
}
