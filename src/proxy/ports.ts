import type { IncomingMessage } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Route } from '../config/configuration.ts';
import type { DeniedDecision, Reason } from '../effects/model/decision.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { Problem, RunRequest } from '../effects/model/run-request.ts';
import type { JsonLimits } from '../json/strict.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import type { HeaderSettings } from '../upstreams/header-rules.ts';
import type { AccessLine } from '../telemetry/access-log.ts';
import type { Spool, SpoolLimits } from '../upstreams/spool.ts';

/**
 * What the data plane needs of the rest of the gateway. `src/gateway/` builds it. Whatever a reload can change is a
 * function, asked on each request.
 */
export interface ProxyPorts {
  /** The routes in force; the same array as long as they do not change. */
  readonly routes: () => readonly Route[];
  readonly catalog: () => Catalog;
  /** Where a request came in: which routes are there, and whether the gateway's own addresses are. */
  readonly entranceOf: (request: IncomingMessage) => Entrance;
  /** Why a request may not come in at all: its Host or Origin. The server asks this itself, of all but upgrades. */
  readonly doorFault: (request: IncomingMessage) => Problem | null;
  /** Who a key is, with the limit on invalid keys by address applied; a promise only when the key is not in the cache. */
  readonly identify: (key: string, address: string) => Identified | Promise<Identified>;
  /**
   * Judges a read without a store round trip: permission and identity, policy, pauses, and whether the gateway's view
   * of keys and pauses is fresh enough.
   */
  readonly evaluateRead: (call: ReadCall) => ReadVerdict;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  /** Appends events that belong to no step. */
  readonly append: (workspace: string, events: readonly LedgerDraft[]) => Promise<void>;
  /** Reads stream through this; `null` where no upstream is declared by that id. */
  readonly stream: (upstream: string) => Dispatcher | null;
  /** Takes a place for a read or a tunnel of an agent; what it gives, gives it back. `null` where none came in time. */
  readonly place: (
    kind: 'reads' | 'tunnels',
    upstream: string,
    workspace: string,
    agentId: string,
  ) => (() => void) | Promise<(() => void) | null>;
  /** Origin, network and credentials of an upstream. */
  readonly upstream: (id: string) => ProxiedUpstream | null;
  readonly receiptView: (jws: string) => JsonObject;
  /** A problem as an answer. */
  readonly renderProblem: (
    problem: Problem,
    request: { readonly id: string; readonly method: string; readonly keyed: boolean },
  ) => RenderedAnswer;
  /** Whether policy is in force or only observes. */
  readonly policyMode: () => 'enforce' | 'observe';
  /** Told of a read that passed and would have been refused, were policy in force. */
  readonly observed: (would: string) => void;
  /** Told of the rules in shadow mode that would have refused a read that passed. */
  readonly shadowed: (rules: readonly string[]) => void;
  /** Told of each request when its answer is over; `null`: nobody wants to know. */
  readonly access: ((line: AccessLine) => void) | null;
  readonly settings: () => ProxySettings;
  /** Where the files of requests are while their calls run. */
  readonly spool: Spool;
  /** The store's time, ms since the epoch. */
  readonly now: () => number;
  readonly newId: (prefix: 'eff') => string;
  /** Calls back whenever keys or pauses may have changed. Gives a function that ends it. */
  readonly onAccessChanged: (listener: () => void) => () => void;
}

/** See `api/entrances.ts`. */
export type Entrance =
  | { readonly kind: 'own' }
  | { readonly kind: 'routes'; readonly listen: string | null; readonly host: string | null }
  | { readonly kind: 'none' };

export type Identified =
  | { readonly kind: 'principal'; readonly principal: Principal }
  | { readonly kind: 'problem'; readonly problem: Problem };

/** A read as a route matched it. */
export interface ReadCall {
  readonly principal: Principal;
  /** The key's workspace; empty where it has none. */
  readonly workspace: string;
  /** The agent that the request names; `null` when it names none. */
  readonly agentId: string | null;
  /** The declared tool, or what undeclared reads of the route are judged as. */
  readonly tool: Tool;
  readonly upstream: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that go on, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly requestIp: string | null;
}

export type ReadVerdict =
  /** It may pass as it is. `rule` is the full id of the rule that allows it, where one does. */
  | {
      readonly kind: 'stream';
      readonly agentId: string;
      readonly policyVersion: string;
      readonly rule: string | null;
      /** In `observe` mode: the decision that policy would have made, and by which rule. */
      readonly observed: { readonly would: string; readonly rule: string | null } | null;
      /** Rules in shadow mode that would have refused it. */
      readonly shadow: readonly string[];
    }
  /**
   * It is refused, or has obligations or approvals: the core decides, with a record. `denied` is the refusal, `null`
   * where the call is permitted under obligations; an upgrade, which the core cannot run, is refused either way.
   */
  | {
      readonly kind: 'govern';
      readonly denied: { readonly decision: DeniedDecision; readonly reason: Reason } | null;
    }
  | { readonly kind: 'problem'; readonly problem: Problem };

export interface ProxiedUpstream {
  /** Origin, no trailing slash. */
  readonly url: string;
  readonly network: 'any' | 'public';
  readonly credentials: { readonly header: string; readonly value: string } | null;
  readonly headers?: HeaderSettings;
}

export interface RenderedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: JsonObject;
}

/** How much of files is taken, bytes. */
export interface UploadLimits extends SpoolLimits {
  /** Of a whole body with files. */
  readonly request: number;
  /** Of the fields beside files, and of the headers of parts. */
  readonly fields: number;
}

export interface ProxySettings {
  /** Origin of links, no trailing slash. */
  readonly publicUrl: string;
  readonly queryKey: 'allow' | 'refuse';
  /** Bytes of a body that is inspected. */
  readonly bodyLimit: number;
  /** What a JSON body may hold. */
  readonly jsonLimits: JsonLimits;
  readonly uploads: UploadLimits;
}
