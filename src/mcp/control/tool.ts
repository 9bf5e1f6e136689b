import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import type { Static, TSchema } from 'typebox';
import { MOST_FAULTS, stopAt } from '../../diagnostics/stop-at.ts';
import type { RequestFault } from '../../effects/model/run-request.ts';
import type { Principal } from '../../effects/model/principal.ts';
import type { EndpointId, View } from '../../identity/permissions.ts';
import type { JsonObject } from '../../json/value.ts';

export interface ControlTool {
  readonly name: string;
  readonly title: string;
  /** For the model: what it tells, and when to use it. */
  readonly description: string;
  /** The row of the permission table that a key needs. */
  readonly endpoint: EndpointId;
  /** Whether what it tells is of one workspace. A key without a workspace does not see it. */
  readonly ofWorkspace: boolean;
  /** Whether it gives the organisation's own data. Then `allowed_tools` of a key has to name it, where that is set. */
  readonly givesBusinessData: boolean;
  /** Whether it can change what is on record. All others only read. */
  readonly changes: boolean;
  readonly inputSchema: TSchema;
  readonly outputSchema: TSchema;
  /** @returns the faults of the arguments, if there are any */
  readonly run: (args: JsonObject, call: ToolCall) => Promise<ToolAnswer | ToolFaults>;
}

/** Who calls a tool, and what that key may see. */
export interface ToolCall {
  readonly principal: Principal;
  readonly view: View;
  /** The workspace of the key; `''` where it has none, which only tools that are of no workspace see. */
  readonly workspace: string;
  /** The agent that the key is bound to; `null` where it is bound to none. */
  readonly ownAgent: string | null;
  readonly address: string;
  readonly requestId: string;
  /** Of the key: store time, ms, and how long it took. */
  readonly authenticated: { readonly at: number; readonly tookMs: number };
}

export interface ToolAnswer {
  readonly kind: 'answer';
  readonly structured: JsonObject;
  /** A sentence or two that say the same in words. */
  readonly text: string;
}

export interface ToolFaults {
  readonly kind: 'faults';
  readonly faults: readonly RequestFault[];
}

interface ToolSpec<Input extends TSchema>
  extends Omit<ControlTool, 'run' | 'inputSchema' | 'ofWorkspace' | 'givesBusinessData' | 'changes'> {
  readonly changes?: boolean;
  readonly ofWorkspace?: boolean;
  readonly givesBusinessData?: boolean;
  readonly input: Input;
  readonly answer: (args: Static<Input>, call: ToolCall) => Promise<ToolAnswer | ToolFaults>;
}

/**
 * Makes a tool whose arguments are checked against its schema before it runs. Nothing is filled in or coerced. The schema
 * is compiled for the first call: no start waits for it.
 */
export function defineTool<Input extends TSchema>(spec: ToolSpec<Input>): ControlTool {
  const { input, answer, ofWorkspace = true, givesBusinessData = false, changes = false, ...rest } = spec;
  let compiled: ValidateFunction<Static<Input>> | null = null;
  return {
    ...rest,
    ofWorkspace,
    givesBusinessData,
    changes,
    inputSchema: input,
    run: async (args, call) => {
      const fits = (compiled ??= validator.compile<Static<Input>>(input));
      return isFit(fits, args) ? answer(args, call) : { kind: 'faults', faults: faultsOf(fits) };
    },
  };
}

const validator = new Ajv2020({
  strict: true,
  allErrors: true,
  strictRequired: false,
  code: { process: stopAt(MOST_FAULTS) },
});

/** A wrapper, because a type predicate that is called on an `any`-typed value narrows to nothing. */
function isFit<Args>(fits: ValidateFunction<Args>, args: unknown): args is Args {
  return fits(args);
}

function faultsOf({ errors }: { readonly errors?: readonly ErrorObject[] | null }): readonly RequestFault[] {
  return (errors ?? []).slice(0, MOST_FAULTS).map((error) => {
    const { keyword, instancePath, params, message = 'does not fit' } = error;
    const named = keyword === 'required' ? params['missingProperty'] : params['additionalProperty'];
    const name = typeof named === 'string' ? named.slice(0, 100) : '';
    switch (keyword) {
      case 'required':
        return { path: `${instancePath}/${name}`, message: 'is required' };
      case 'additionalProperties':
        return { path: `${instancePath}/${name}`, message: 'is no argument of this tool' };
      case 'enum': {
        const allowed: unknown = params['allowedValues'];
        return { path: instancePath, message: `must be one of ${JSON.stringify(allowed)}` };
      }
      default:
        return { path: instancePath, message };
    }
  });
}

export function answered(structured: JsonObject, text: string): ToolAnswer {
  return { kind: 'answer', structured, text };
}

/** How many there are, in a sentence: `1 effect`, `3 effects`, `100+ effects`; `1 tool fits`, `3 tools fit`. */
export function many(count: number | `${number}+`, one: string, more = `${one}s`): string {
  return `${count} ${count === 1 ? one : more}`;
}

export function faulty(path: string, message: string): ToolFaults {
  return { kind: 'faults', faults: [{ path, message }] };
}
