import type { FastifyRequest } from 'fastify';
import type { Brain } from '../../brain/brain.ts';
import type { Note } from '../../effects/model/note.ts';
import type { Problem, RunRequest } from '../../effects/model/run-request.ts';
import type { JudgeInput } from '../../effects/ports.ts';
import type { PreviewResult } from '../../effects/run/preview-effect.ts';
import type { ProbeCall, ProbeResult } from '../../effects/run/probe-effect.ts';
import type { Running } from '../../effects/run/running.ts';
import type { Tool } from '../../effects/model/tool.ts';
import type { EffectStore } from '../../effects/store.ts';
import type { CallReaderPorts } from '../../effects/wire/calls.ts';
import type { Directory } from '../../identity/directory.ts';
import type { JsonLimits } from '../../json/strict.ts';
import type { JsonObject } from '../../json/value.ts';
import type { PinState } from '../../pins/observed.ts';
import type { PolicyInput } from '../../policy/input.ts';
import type { CompiledPolicies } from '../../policy/policies.ts';
import type { Catalog } from '../../upstreams/catalog.ts';
import type { CallerPorts } from '../caller.ts';
import type { FaultPorts } from '../http.ts';

/** What the MCP control plane needs of the rest of the gateway. Whatever a reload can change is a function. */
export interface ControlPorts extends CallerPorts, FaultPorts, CallReaderPorts {
  readonly store: Pick<
    EffectStore,
    | 'now'
    | 'health'
    | 'turns'
    | 'effect'
    | 'effects'
    | 'receipt'
    | 'effectLedgerInTurns'
    | 'approval'
    | 'approvals'
    | 'budgets'
    | 'keys'
    | 'pauses'
  >;
  /** What a run would answer now. Writes nothing. */
  /** @param isOfCalls whether it looks at calls with the same params */
  readonly preview: (request: RunRequest, isOfCalls: boolean) => Promise<PreviewResult>;
  readonly probe: (call: ProbeCall) => Promise<ProbeResult>;
  readonly policyInput: (input: JudgeInput) => PolicyInput;
  /** Has a decision judged by json-rules-engine's own engine as well, if it is one of the sample. */
  readonly secondOpinion: (policies: CompiledPolicies, input: PolicyInput) => void;
  readonly directory: Pick<Directory, 'agent'>;
  readonly catalog: () => Catalog;
  readonly brain: Pick<Brain, 'query' | 'types'>;
  /** How tools of MCP servers stand to what was approved. */
  readonly pins: {
    /** `null` where a tool has no pin. */
    readonly stateOf: (tool: Tool) => PinState | null;
    /** The servers, with the names that they list and nobody has approved. */
    readonly seen: () => readonly { readonly upstream: string; readonly unapproved: readonly string[] }[];
  };
  readonly policies: () => { readonly set: CompiledPolicies; readonly mode: 'enforce' | 'observe' };
  readonly receipts: {
    readonly view: (jws: string) => JsonObject;
    /** All receipt keys, including retired ones (RFC 7517). */
    readonly jwks: () => JsonObject;
  };
  readonly running: Pick<Running, 'stagesOf'>;
  /** Makes a list for a key when it is its turn, so that nobody who lists holds up others. */
  readonly inLine: <T>(keyId: string, make: () => Promise<T>) => Promise<T>;
  readonly installation: () => Installation;
  readonly settings: () => {
    /** Origin of links, no trailing slash. */
    readonly publicUrl: string;
    readonly queryKey: 'allow' | 'refuse';
    readonly jsonLimits: JsonLimits;
  };
  /** Says in the log who called what. */
  readonly called: (
    request: FastifyRequest,
    call: {
      readonly keyId: string;
      readonly tool: string;
      readonly outcome: 'answered' | 'error' | 'refused';
      readonly code: Problem['code'] | null;
    },
  ) => void;
}

/** How the gateway is installed, as far as its readiness depends on it. */
export interface Installation {
  /** Whether callers reach it over TLS, or only from the machine itself. */
  readonly entrance: 'tls' | 'tls_before' | 'loopback' | 'plain';
  readonly queryKey: 'allow' | 'refuse';
  /** Earlier master secrets that still open what was sealed with them. */
  readonly previousSecrets: number;
  /** What keeps the gateway from taking calls, and what people should look at. */
  readonly impediments: readonly Note[];
  readonly notes: readonly Note[];
}
