import type { Json, JsonObject } from '../../json/value.ts';
import { formMisfit } from './form.ts';
import { multipartMisfit, opaqueMisfit } from './multipart-body.ts';
import { queryMisfit, restMisfit } from './query.ts';
import { misfit, type Place, placeOf, type RequestPlan } from './request-template.ts';

/** The request that a tool declares, with the schema of its params. */
export interface DeclaredRequest {
  readonly plan: RequestPlan;
  readonly schema: JsonObject | null;
}

/** A param that cannot stand where the request has it, or that the request needs. */
export interface Misfit {
  readonly name: string;
  readonly message: string;
}

/** Most calls have none. */
const NONE: readonly Misfit[] = [];

/**
 * What keeps params from becoming the request: params without a place, those that do not fit theirs, and missing parts
 * of the path.
 * @param most after as many, no further params are looked at; what the path misses is always said
 */
export function misfits(request: DeclaredRequest, params: JsonObject, most: number): readonly Misfit[] {
  const { plan } = request;
  let found: Misfit[] | null = null;
  for (const [name, value] of Object.entries(params)) {
    if ((found?.length ?? 0) >= most) break;
    const place = plan.places.get(name) ?? placeOf(plan, name);
    if (place?.in === 'body' && plan.bodyType === 'json') continue;
    const message =
      place === null
        ? 'is a param that no part of the request uses; if it stands in the query, add it to query of the request of the tool, or query_rest: NAME for all that is there'
        : place.in === 'body'
          ? bodyMisfit(request, name, value)
          : (misfit(place, value) ?? (place.in === 'query' ? queryPartsMisfit(request, place, name, params) : null));
    if (message !== null) (found ??= []).push({ name, message });
  }
  for (const [name, place] of plan.places) {
    if (place.in === 'path' && !Object.hasOwn(params, name))
      (found ??= []).push({ name, message: 'is required: the path needs it' });
  }
  return found ?? NONE;
}

/** Of what may have parts in the query. */
function queryPartsMisfit(
  { plan, schema }: DeclaredRequest,
  place: Extract<Place, { in: 'query' }>,
  name: string,
  params: JsonObject,
): string | null {
  const value = params[name];
  if (place.style === null || value === undefined) return null;
  return place.style === 'rest'
    ? restMisfit(plan.query, value, params, schema)
    : queryMisfit(name, value, place.style, schema);
}

function bodyMisfit({ plan, schema }: DeclaredRequest, name: string, value: Json): string | null {
  const { bodyType, formLists: lists } = plan;
  switch (bodyType) {
    case 'json':
      return null;
    case 'form':
      return formMisfit(name, value, { lists, schema });
    case 'multipart':
      return multipartMisfit(name, value, { lists, schema });
    case 'opaque':
      return opaqueMisfit(value);
  }
}
