import { Type } from 'typebox';
import { SCOPES } from '../effects/model/principal.ts';
import { type ApiApp, guarded } from './app.ts';
import type { ApiPorts } from './ports.ts';
import { answers, List, Nullable } from './schema.ts';

const Profiles = Type.Object({
  profiles: List(
    Type.Object({
      name: Type.String(),
      description: Type.String(),
      scopes: List(Type.Enum([...SCOPES])),
      allowed_tools: Nullable(List(Type.String()), '`null` is no limit.'),
      read_only: Type.Boolean(),
    }),
  ),
});

/** `GET /v1/mcp/key-profiles`. */
export function addKeyProfileRoutes(app: ApiApp, ports: ApiPorts): void {
  app.get(
    '/v1/mcp/key-profiles',
    guarded('key_profiles.read', {
      operationId: 'listKeyProfiles',
      summary: 'The profiles that a key can be made with',
      tags: ['keys'],
      response: answers({ 200: Profiles }),
    }),
    async () => ({
      profiles: ports.profiles().map(({ name, description, scopes, allowedTools, readOnly }) => ({
        name,
        description,
        scopes,
        allowed_tools: allowedTools,
        read_only: readOnly,
      })),
    }),
  );
}
