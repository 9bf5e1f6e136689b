import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';

/* Elicitations by URL: a server has the user of a client visit an address. */

export const ELICITATION = 'elicitation/create';

/** The oldest revision whose clients visit addresses. */
export const URLS_SINCE = '2025-11-25';

/** Whether a client, by its capabilities, has its user visit an address. */
export function takesUrls({ elicitation }: JsonObject): boolean {
  return isJsonObject(elicitation) && isJsonObject(elicitation['url']);
}

/**
 * A message of a server with other params of its elicitations, wherever the protocol has them: a request of its own; an
 * error which says that the user has to visit something first; what a result asks for before it is complete.
 * @param change returns the same object where there is nothing to change
 * @returns the same object where nothing was changed
 */
export function changeElicitations(message: JsonObject, change: (params: JsonObject) => JsonObject): JsonObject {
  const { method, params, error, result } = message;
  if (method === ELICITATION && isJsonObject(params)) return replaced(message, 'params', params, change(params));
  if (isJsonObject(error) && isJsonObject(error['data'])) {
    const { data } = error;
    const asked = data['elicitations'];
    if (isJsonArray(asked)) {
      const others = asked.map((one) => (isJsonObject(one) ? change(one) : one));
      if (others.every((one, index) => one === asked[index])) return message;
      return { ...message, error: { ...error, data: { ...data, elicitations: others } } };
    }
  }
  if (isJsonObject(result) && isJsonObject(result['inputRequests'])) {
    const requests = result['inputRequests'];
    const others = Object.entries(requests).map(([name, one]): [string, Json] => {
      const asked = isJsonObject(one) ? one['params'] : undefined;
      return isJsonObject(one) && isJsonObject(asked)
        ? [name, replaced(one, 'params', asked, change(asked))]
        : [name, one];
    });
    if (others.every(([name, one]) => one === requests[name])) return message;
    return { ...message, result: { ...result, inputRequests: Object.fromEntries(others) } };
  }
  return message;
}

function replaced(of: JsonObject, name: string, before: Json, now: Json): JsonObject {
  return before === now ? of : { ...of, [name]: now };
}
