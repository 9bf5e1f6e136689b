import type { ReceiptSigner } from '../receipts/sign.ts';
import type { KeyRecord, KeyProfile } from '../effects/model/key.ts';
import type { ApprovalCall, ApprovalResult } from '../effects/run/decide-approval.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { Standing } from '../effects/run/standing.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import type { Receiver } from '../effects/model/notification.ts';
import type { JsonObject } from '../json/value.ts';
import type { Note } from '../effects/model/note.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { PreviewResult } from '../effects/run/preview-effect.ts';
import type { PolicyProposal } from '../effects/model/policy-proposal.ts';
import type { Principal } from '../effects/model/principal.ts';
import type { ProbeCall, ProbeResult } from '../effects/run/probe-effect.ts';
import type { ResolveCall, ResolveResult } from '../effects/run/resolve-effect.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import type { Running } from '../effects/run/running.ts';
import type { EffectStore } from '../effects/store.ts';
import type { JsonLimits } from '../json/strict.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Directory } from '../identity/directory.ts';
import type { Passkey } from '../effects/model/passkey.ts';
import type { Passkeys } from '../identity/passkeys/passkeys.ts';
import type { KeyRequest, MadeKey } from '../identity/key-record.ts';
import type { PreferredWait } from './preferred-wait.ts';
import type { Lists } from './lists.ts';
import type { IncomingHttpHeaders } from 'node:http';
import type { Brain } from '../brain/brain.ts';
import type { BrainWriter } from '../brain/writer.ts';
import type { PinComparison } from '../pins/compare.ts';
import type { PinState } from '../pins/observed.ts';
import type { PolicyText } from '../policy/policy-texts.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import type { PolicyInput } from '../policy/input.ts';
import type { OftenApproved, SuggestedRule } from '../policy/suggest.ts';
import type { JudgeInput, SealedParams } from '../effects/ports.ts';
import type { Secrets } from '../secrets/vault.ts';
import type { InvalidKeyLimiter } from './invalid-key-limiter.ts';
import type { Disclosure } from '../receipts/commitments.ts';
import type { HeaderSettings } from '../effects/upstream.ts';

/**
 * What the control plane needs of the rest of the gateway. `src/gateway/` builds it. Whatever a reload can change is a
 * function that is called on each request.
 */
export interface ApiPorts {
  readonly store: EffectStore;
  /** The principal of a key in the clear; a promise only if the key is not in the cache. */
  readonly authenticate: (key: string) => Authenticated | Promise<Authenticated>;
  /** Whom the key of this id belongs to now; for sessions that began with that key. Rejects without the store. */
  readonly stillValid: (keyId: string) => Promise<Authenticated>;
  /** People at the console. */
  readonly sessions: ApiSessions;
  readonly passkeys: Passkeys;
  /** Seals what browsers carry for people. */
  readonly seals: Pick<Secrets, 'sealText' | 'openText'>;
  /** What each address has used up with invalid keys; all doors share it. */
  readonly invalidKeys: InvalidKeyLimiter;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  /** Shared with the other doors. */
  readonly preferredWait: Pick<PreferredWait, 'hold' | 'end'>;
  /** What {@link ApiPorts.run} would answer now. Writes nothing. */
  readonly preview: (request: RunRequest) => Promise<PreviewResult>;
  readonly running: Pick<Running, 'stagesOf'>;
  readonly resolve: (request: ResolveCall) => Promise<ResolveResult>;
  readonly probe: (call: ProbeCall) => Promise<ProbeResult>;
  readonly decideApproval: (request: ApprovalCall) => Promise<ApprovalResult>;
  readonly standingOf: (approval: ApprovalRecord) => Promise<Standing>;
  /** The params of a call and the headers that are part of it, opened; `null` if they cannot be opened. */
  readonly openParams: (effect: EffectRecord) => Pick<SealedParams, 'params' | 'headers' | 'requestIp'> | null;
  readonly directory: Directory;
  /** Which headers go on to an upstream; `null` if no upstream has this id. */
  readonly upstream: (id: string) => {
    readonly credentials: { readonly header: string } | null;
    readonly headers?: HeaderSettings;
  } | null;
  readonly catalog: () => { tool(name: string): Tool | null; tools(): readonly Tool[] };
  readonly policies: () => {
    readonly set: CompiledPolicies;
    readonly mode: 'enforce' | 'observe';
    /** Of the files of this gateway; `null` where they cannot be used. */
    readonly filesVersion: string | null;
  };
  /** Puts other policies in force, on all gateways of the store. @throws StoreUnavailable */
  readonly choosePolicy: (choice: PolicyChoice, by: Principal, why: string | null) => Promise<ChosenPolicy>;
  /**
   * Confirms policies that somebody else has proposed; the last one that is needed puts them in force.
   * @throws StoreUnavailable
   */
  readonly confirmPolicy: (id: string, by: Principal) => Promise<ConfirmedPolicy>;
  /** What the policies of a version said. @throws StoreUnavailable */
  readonly showPolicy: (version: string) => Promise<ShownPolicy>;
  /**
   * The texts of a version that was in force, not held against it: as they were written, large ones as the store packs them;
   * `null` where they are not kept.
   * @throws StoreUnavailable
   */
  readonly policyTexts: (
    version: string,
  ) => Promise<{ readonly files: readonly PolicyText[] } | { readonly packed: readonly string[] } | null>;
  readonly policyInput: (input: JudgeInput) => PolicyInput;
  /**
   * Drafts rules for what people approved time and again, and tries them with the policies in force; `null` where it
   * cannot try them.
   * @throws StoreUnavailable
   */
  readonly suggestRules: (groups: readonly OftenApproved[]) => Promise<readonly SuggestedRule[] | null>;
  readonly profiles: () => readonly KeyProfile[];
  readonly keys: {
    /** Makes a key without storing it (`createKeyRecord` with its context). */
    readonly create: (request: KeyRequest) => MadeKey;
    /** Makes a successor with the same rights without storing it. */
    readonly successor: (of: KeyRecord, madeBy: string | null) => { readonly record: KeyRecord; readonly key: string };
  };
  readonly receipts: {
    readonly view: (jws: string) => JsonObject;
    /** Salts and values that open a receipt's commitments; `null` if they were erased or the seal does not open. */
    readonly disclosure: (effect: EffectRecord, jws: string, approval: ApprovalRecord | null) => Disclosure | null;
    /** All receipt keys, including retired ones (RFC 7517). */
    readonly jwks: ReceiptSigner['jwks'];
    readonly sealExport: ReceiptSigner['sealExport'];
  };
  /** Lists of all doors are made in the same lines. */
  readonly lists: Lists;
  readonly brain: Pick<Brain, 'query' | 'written'>;
  readonly brainWriter: Pick<BrainWriter, 'put'>;
  /** What was approved of the tools of MCP servers, beside what they say. */
  readonly pins: {
    /** How a tool stands to its pin; `null` where it has none. */
    stateOf(tool: Tool): PinState | null;
    /** What was seen of the MCP servers, beside their pinned tools. */
    seen(): readonly {
      readonly upstream: string;
      /** Why it could not be read; `null` where it could, or has not been read. */
      readonly failure: string | null;
      /** Names that it lists and nobody has approved. */
      readonly unapproved: readonly string[];
    }[];
    /** What a server says now beside what was approved, or why it cannot be read; `null` if there is no such server. */
    compare(upstream: string): Promise<PinComparison | string | null>;
  };
  readonly pools: () => ReadonlyMap<string, number>;
  /** Who is told of what happens. */
  readonly receivers: () => readonly Pick<Receiver, 'id'>[];
  readonly settings: () => ApiSettings;
  /** A fresh id: the prefix, `_` and a ULID in lower case. */
  readonly newId: (prefix: 'clm' | 'rsv' | 'pau') => string;
  /** What, besides the store, keeps the gateway from taking calls (draining, journal, policy). Empty: nothing. */
  readonly impediments: () => readonly Note[];
  /** What people should look at although the gateway takes calls (files that are not in force). Empty: nothing. */
  readonly notes: () => readonly Note[];
  /** Prometheus text of all metrics. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

/** What a person asks to be put in force. */
export type PolicyChoice =
  | { readonly kind: 'files' }
  | { readonly kind: 'version'; readonly version: string }
  /** What was in force before what is now. */
  | { readonly kind: 'before' };

/** What came of wanting policies in force; `version`: what is in force now. */
export type ProposedPolicy =
  | { readonly kind: 'active'; readonly version: string }
  /** Somebody else has to confirm it. */
  | { readonly kind: 'proposed'; readonly version: string; readonly proposal: PolicyProposal }
  /** It cannot be put in force here, or not proposed. For people, with every fault. */
  | { readonly kind: 'refused'; readonly message: string };

/** What came of a confirmation; `version`: what is in force now. */
export type ConfirmedPolicy =
  | { readonly kind: 'active'; readonly version: string; readonly proposal: PolicyProposal }
  /** One more person has to. */
  | { readonly kind: 'counted'; readonly version: string; readonly proposal: PolicyProposal }
  | { readonly kind: 'absent' }
  /** It is over, or cannot be put in force. */
  | { readonly kind: 'refused'; readonly message: string }
  /** Who asks is not another person than those who stand behind it. */
  | { readonly kind: 'own_request'; readonly message: string };

export type ChosenPolicy =
  | ProposedPolicy
  /** It was never in force, or so long ago that its files are gone. */
  | { readonly kind: 'not_kept' };

export type ShownPolicy =
  | {
      readonly kind: 'shown';
      readonly files: readonly PolicyText[];
      /** Whether the text was found to be that of the version; only texts that fit the configuration of now are. */
      readonly isProven: boolean;
    }
  | { readonly kind: 'not_kept' | 'too_large' };

export type Authenticated = Principal | { readonly failure: 'invalid_key' };

export interface ApiSettings {
  /** Origin of links, no trailing slash. */
  readonly publicUrl: string;
  /** Further names that `Host` may have besides the bound address; compared without port. */
  readonly allowedHosts: readonly string[];
  readonly queryKey: 'allow' | 'refuse';
  readonly jsonLimits: JsonLimits;
}

/** Sessions of the console, as the API sees them. */
export interface ApiSessions {
  /**
   * Who sends a request without a key; `null` where no session does that is good now. Only requests that the console's
   * own pages make count.
   */
  visitorOf(headers: IncomingHttpHeaders): Promise<Visitor | null>;
  /** Whoever has signed with a passkey, as the key that it stands for now; `null` where that has ended. */
  ownerOf(passkey: Pick<Passkey, 'user' | 'keyId'>): Promise<Principal | null>;
  /** Makes a link that opens a session once, for the owner of a key. */
  makeLink(principal: Principal): Promise<{ readonly token: string; readonly until: number }>;
}

/** Somebody with a session. */
export interface Visitor {
  readonly principal: Principal;
  /** Whether the session has seen the key itself, and not only a link. */
  readonly hasShownKey: boolean;
  /** The passkey that the session was signed in with; `null`: a key, or a link. */
  readonly passkey: string | null;
  /** Unlike that of any other session; no browser knows it. */
  readonly session: string;
  /** When the session ends, ms. */
  readonly until: number;
}
