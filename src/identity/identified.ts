import type { Principal } from '../effects/model/principal.ts';
import type { Problem } from '../effects/model/run-request.ts';

/** The principal of a key, or why there is none. */
export type Identified =
  | { readonly kind: 'principal'; readonly principal: Principal }
  | { readonly kind: 'problem'; readonly problem: Problem };
