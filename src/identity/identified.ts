import type { Principal } from '../effects/model/principal.ts';
import type { Problem } from '../effects/model/run-request.ts';

/** Whom a key belongs to, or why nobody knows. */
export type Identified =
  | { readonly kind: 'principal'; readonly principal: Principal }
  | { readonly kind: 'problem'; readonly problem: Problem };
