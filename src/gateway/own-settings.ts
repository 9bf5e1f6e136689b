import type { ApiSettings } from '../api/ports.ts';
import type { Held, InForce } from './in-force.ts';

/** The settings that all doors read. They follow reloads, and where the gateway listens. */
export class OwnSettings {
  readonly #held: Held;
  /** Where callers reach the gateway, unless the configuration says it; empty until it listens. */
  #origin = '';
  #made: { readonly of: InForce; readonly settings: ApiSettings };

  constructor(held: Held) {
    this.#held = held;
    this.#made = this.#make();
  }

  /** Those of now. */
  readonly read = (): ApiSettings => {
    if (this.#made.of !== this.#held.inForce) this.#made = this.#make();
    return this.#made.settings;
  };

  readonly routes = (): InForce['configuration']['routes'] => this.#held.inForce.configuration.routes;

  listensAt(url: string): void {
    this.#origin = url;
    this.#made = this.#make();
  }

  #make(): { readonly of: InForce; readonly settings: ApiSettings } {
    const of = this.#held.inForce;
    const { server, auth, limits } = of.configuration;
    const settings = {
      publicUrl: server.publicUrl ?? this.#origin,
      allowedHosts: server.allowedHosts,
      queryKey: auth.queryKey,
      jsonLimits: { depth: limits.paramsDepth, values: limits.paramsValues },
    };
    return { of, settings };
  }
}
