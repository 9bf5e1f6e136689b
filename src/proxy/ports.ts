import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Route } from '../config/configuration.ts';
import type { Entrance } from '../config/entrance.ts';
import type { DeniedDecision, Reason } from '../effects/model/decision.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { Identified } from '../identity/identified.ts';
import type { Problem, RunRequest } from '../effects/model/run-request.ts';
import type { JsonLimits } from '../json/strict.ts';
import type { Catalog } from '../upstreams/catalog.ts';
import type { AccessLine } from '../telemetry/access-log.ts';
import type { Spool, SpoolLimits } from '../upstreams/http/spool.ts';
import type { UpstreamSettings } from '../upstreams/http/http-upstream.ts';
import type { JudgeInput } from '../effects/ports.ts';
import type { RenderedOutcome } from '../effects/run/render.ts';

/**
 * What the data plane needs of the rest of the gateway. `src/gateway/` builds it. Whatever a reload can change is a
 * function that is called on each request.
 */
export interface ProxyPorts {
  /** The routes in force: the same array until they change. */
  readonly routes: () => readonly Route[];
  readonly catalog: () => Catalog;
  /** Where a request came in: this decides which routes exist, and whether the gateway's own addresses do. */
  readonly entranceOf: (request: IncomingMessage) => Entrance;
  /**
   * Why a request may not come in at all, because of its Host or Origin. The server itself checks everything but
   * upgrades.
   */
  readonly doorFault: (request: IncomingMessage) => Problem | null;
  /**
   * Who a key belongs to, with the limit on invalid keys per address applied. A promise only if the key is not in the
   * cache.
   */
  readonly identify: (key: string, address: string) => Identified | Promise<Identified>;
  /**
   * Judges a read without asking the store: permission and identity, policy, pauses, and whether the gateway's view of
   * keys and pauses is fresh enough. Not `byRules`: what policy has no say in.
   */
  readonly evaluateRead: (call: ReadCall, byRules?: boolean) => ReadVerdict;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  /**
   * Holds the caller of a call that has not ended, if it prefers to wait; `null`: it is answered now. `applied` is the
   * value of the header `Preference-Applied` of its answer.
   */
  readonly preferredWait: {
    hold(
      request: IncomingMessage,
      response: ServerResponse,
      call: RunRequest,
      first: RunResult,
    ): { readonly applied: string; readonly became: Promise<RunResult> } | null;
  };
  /** Appends events that do not belong to a step. */
  readonly append: (workspace: string, events: readonly LedgerDraft[]) => Promise<void>;
  /** The pool for streamed reads; `null` if no upstream has this id. */
  readonly stream: (upstream: string) => Dispatcher | null;
  /** Hears of each read that was sent: why it had no answer; `null`: it had one. */
  readonly heard: (upstream: string, code: string | null) => void;
  /**
   * Takes a place for an agent's read or tunnel. The returned function gives it back. `null` if none became free in
   * time.
   */
  readonly place: (
    kind: 'reads' | 'tunnels',
    upstream: string,
    workspace: string,
    agentId: string,
  ) => (() => void) | Promise<(() => void) | null>;
  readonly upstream: (id: string) => ProxiedUpstream | null;
  readonly receiptView: (jws: string) => JsonObject;
  readonly renderProblem: (
    problem: Problem,
    request: { readonly id: string; readonly method: string; readonly keyed: boolean },
  ) => RenderedOutcome;
  /** Whether policy is enforced or only observes. */
  readonly policyMode: () => 'enforce' | 'observe';
  /** Called for a read that passed but would have been refused if policy were enforced. */
  readonly observed: (would: string) => void;
  /** Called with the rules in shadow mode that would have refused a read that passed. */
  readonly shadowed: (rules: readonly string[]) => void;
  /** Told of each request when its answer is over; `null`: nobody wants to know. */
  readonly access: ((line: AccessLine) => void) | null;
  readonly settings: () => ProxySettings;
  /** Where the files of requests are kept while their calls run. */
  readonly spool: Spool;
  /** The store's time, ms since the epoch. */
  readonly now: () => number;
  readonly newId: (prefix: 'eff') => string;
  /** Calls the listener whenever keys or pauses may have changed. Returns a function that stops it. */
  readonly onAccessChanged: (listener: () => void) => () => void;
}

export interface ReadCall extends Omit<JudgeInput, 'agent' | 'key' | 'now'> {
  readonly principal: Principal;
  /** The agent that the request names; `null` if it names none. */
  readonly agentId: string | null;
  readonly upstream: string;
}

export type ReadVerdict =
  /** It may pass without changes. `rule` is the full id of the rule that allows it, if there is one. */
  | {
      readonly kind: 'stream';
      readonly agentId: string;
      readonly policyVersion: string;
      readonly rule: string | null;
      /** In `observe` mode: the decision that policy would have made, and the rule for it. */
      readonly observed: { readonly would: string; readonly rule: string | null } | null;
      /** Rules in shadow mode that would have refused it. */
      readonly shadow: readonly string[];
    }
  /**
   * It is refused, or has obligations or approvals: the core decides, with a record. `denied` is the refusal; `null` if
   * the call is permitted under obligations. An upgrade is refused in both cases, because the core cannot run it.
   */
  | {
      readonly kind: 'govern';
      readonly denied: { readonly decision: DeniedDecision; readonly reason: Reason } | null;
    }
  | { readonly kind: 'problem'; readonly problem: Problem };

export type ProxiedUpstream = Pick<UpstreamSettings, 'url' | 'network' | 'credentials' | 'headers' | 'tls'>;

/** How many bytes of files are accepted. */
export interface UploadLimits extends SpoolLimits {
  /** For a whole body with files. */
  readonly request: number;
  /** For the fields besides files, and for the headers of parts. */
  readonly fields: number;
}

export interface ProxySettings {
  /** Origin of links, no trailing slash. */
  readonly publicUrl: string;
  readonly queryKey: 'allow' | 'refuse';
  /** The most bytes of a body that is inspected. */
  readonly bodyLimit: number;
  readonly jsonLimits: JsonLimits;
  readonly uploads: UploadLimits;
}
