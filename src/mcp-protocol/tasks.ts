import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { META } from './revisions.ts';

/* Calls as tasks: an extension in 2026-07-28; an experiment of its own form, `capabilities.tasks`, in 2025-11-25. */

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';

/** Methods of either form. */
export const TASK_METHODS = ['tasks/get', 'tasks/update', 'tasks/cancel', 'tasks/result', 'tasks/list'] as const;

/** Whether a client, by its capabilities, takes a task as the answer to a call. */
export function takesTasks({ extensions }: JsonObject): boolean {
  return isJsonObject(extensions) && isJsonObject(extensions[TASKS_EXTENSION]);
}

export function withoutExtension(capabilities: JsonObject): JsonObject {
  const { extensions } = capabilities;
  if (!isJsonObject(extensions) || extensions[TASKS_EXTENSION] === undefined) return capabilities;
  const { [TASKS_EXTENSION]: _tasks, ...others } = extensions;
  return { ...capabilities, extensions: others };
}

/** Params of a request as a server gets them: no server makes a task of a call whose client takes none. */
export function paramsWithoutTasks(params: JsonObject): JsonObject {
  const { _meta: meta } = params;
  const capabilities = isJsonObject(meta) ? meta[META.clientCapabilities] : undefined;
  if (!isJsonObject(meta) || !isJsonObject(capabilities) || !takesTasks(capabilities)) return params;
  return { ...params, _meta: { ...meta, [META.clientCapabilities]: withoutExtension(capabilities) } };
}

/** Whether a result is the task of either form in place of what was asked for. */
export function isTask(result: Readonly<Record<string, Json>>): boolean {
  if (result['resultType'] === 'task') return true;
  const { task, content } = result;
  return content === undefined && isJsonObject(task) && typeof task['taskId'] === 'string';
}
