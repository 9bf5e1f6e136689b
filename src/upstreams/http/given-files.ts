import { createHash } from 'node:crypto';
import { type CallFiles, type FileFacts, filesOf, isFile, NO_FILES } from '../../effects/model/files.ts';
import type { RequestFault } from '../../effects/model/run-request.ts';
import { isHttpTool, type Tool } from '../../effects/model/tool.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject, pointerTo } from '../../json/value.ts';
import { MOST_SHOWN } from './form.ts';
import { UNKNOWN_TYPE } from './multipart-body.ts';
import { placeOf, planOf, takesFiles } from './request-template.ts';

/**
 * Takes the bytes out of files that came as `{ filename, content_type, data }`, with `data` in base64. The params that
 * remain are the same as those of a proxied call with these files.
 */
export function takeFiles(
  tool: Tool | null,
  params: JsonObject,
): { readonly params: JsonObject; readonly files: CallFiles; readonly faults: readonly RequestFault[] } {
  const plan = tool === null || !isHttpTool(tool) ? null : planOf(tool.call.request);
  if (plan === null || !takesFiles(plan)) return { params, files: NO_FILES, faults: [] };
  const contents = new Map<string, Buffer>();
  const faults: RequestFault[] = [];
  const isWhole = plan.bodyType === 'opaque';
  const take = (value: Json, path: string): Json => {
    if (isJsonArray(value)) return value.map((item, index) => take(item, `${path}/${index}`));
    if (!isJsonObject(value)) return value;
    if (isFile(value)) {
      faults.push({
        path,
        message: 'is a file without its bytes: send { filename, content_type, data }, data in base64',
      });
      return value;
    }
    if (isGiven(value) && isWhole === (value.filename === undefined)) {
      const bytes = decoded(value.data);
      if (bytes === null) faults.push({ path: `${path}/data`, message: 'is not base64' });
      else return factsOf(value, bytes, isWhole, contents);
    }
    const members = Object.entries(value).map(([name, member]) => [
      name,
      take(member, `${path}${pointerTo([name], MOST_SHOWN)}`),
    ]);
    return Object.fromEntries(members) as JsonObject;
  };
  const taken: Record<string, Json> = {};
  for (const [name, value] of Object.entries(params))
    taken[name] = placeOf(plan, name)?.in === 'body' ? take(value, `/params${pointerTo([name], MOST_SHOWN)}`) : value;
  return { params: taken, files: filesOf(contents), faults };
}

type Given = JsonObject & { readonly data: string; readonly filename?: string; readonly content_type?: string };

const MEMBERS: readonly string[] = ['filename', 'content_type', 'data'];

function isGiven(value: JsonObject): value is Given {
  const { data, filename, content_type: type } = value;
  return (
    typeof data === 'string' &&
    (filename === undefined || typeof filename === 'string') &&
    (type === undefined || typeof type === 'string') &&
    Object.keys(value).every((name) => MEMBERS.includes(name))
  );
}

/** The members are in the same order as in a proxied call. */
function factsOf(given: Given, bytes: Buffer, isWhole: boolean, contents: Map<string, Buffer>): FileFacts {
  const { filename, content_type: type = isWhole ? undefined : UNKNOWN_TYPE } = given;
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  contents.set(sha256, bytes);
  return {
    ...(filename === undefined ? {} : { filename }),
    ...(type === undefined ? {} : { content_type: type }),
    bytes: bytes.byteLength,
    sha256,
  };
}

/** Accepts only the canonical spelling: another text for the same bytes is a mistake. */
function decoded(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : null;
}
