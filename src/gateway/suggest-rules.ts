import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { loadConfiguration } from '../config/load.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import { unpackBundle } from '../policy/bundle.ts';
import { type OftenApproved, type SuggestedRule, suggestRules } from '../policy/suggest.ts';
import type { SharedPolicies } from './read-files.ts';

/** Rules are to be drafted for these calls, and tried with the policies in force. */
export interface SuggestRequest {
  readonly configFile: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly inForce: SharedPolicies;
  readonly groups: readonly OftenApproved[];
}

/** `null`: the files cannot be used as they are now, or the policies do not fit them. */
export type SuggestAnswer = readonly SuggestedRule[] | null;

/** Reads and compiles as long as it takes: beside the thread that answers calls. */
export async function answerSuggest(request: SuggestRequest): Promise<SuggestAnswer> {
  const { configFile, environment, inForce, groups } = request;
  try {
    const { configuration } = await loadConfiguration(configFile, { environment });
    return suggestRules(groups, unpackBundle(inForce.parts), surroundingsOfPolicies(configuration));
  } catch (error) {
    if (error instanceof InvalidFiles) return null;
    throw error;
  }
}
