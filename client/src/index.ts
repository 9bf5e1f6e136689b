export { SvcError } from './error.ts';
export type { Fault } from './error.ts';
export type { Json, JsonObject } from './json.ts';
export type * from './records.ts';
export type * from './result.ts';
export { Svc } from './svc.ts';
export type { SvcOptions } from './svc.ts';
export type { Fetch } from './transport.ts';
