import { Type } from 'typebox';
import { SCOPES, type Scope } from '../effects/model/principal.ts';
import {
  durationOr,
  flag,
  list,
  oneOf,
  personId,
  personWords,
  record,
  role,
  roleName,
  section,
  slug,
  slugWords,
  text,
  toolName,
} from './schema-fields.ts';

export const user = record('a user', 'A person: approver, owner of agents and keys.', {
  id: text(personId, personWords, 'Id of the user.'),
  roles: list('Roles of the user.', role('A role.')),
});

export const roles = Type.Record(
  Type.String({ pattern: roleName }),
  record('a role', 'A role.', { includes: list('Roles that holders of this one have as well.', role('A role.')) }),
  { description: 'Roles that include others.', default: {}, additionalProperties: false, 'x-name': 'roles' },
);

const kindExpiry = (kind: string) =>
  durationOr('never', `How long new ${kind} keys are valid when nobody says.`, { min: '1s', max: '3650d' }, 'never');

const profile = record('a profile', 'A set of rights that keys can be made with.', {
  name: text(slug, slugWords, 'Name of the profile.'),
  description: Type.String({ description: 'What it is for.', default: '' }),
  scopes: Type.Array(Type.Unsafe<Scope>({ type: 'string', enum: SCOPES }), {
    description: 'What keys of this profile may do.',
  }),
  allowed_tools: Type.Optional(
    Type.Array(text(toolName, 'the name of a tool', 'A tool.'), {
      description: 'Tools that they may call or see. Default: no limit.',
    }),
  ),
  read_only: flag('They can never change anything, whatever their scopes say.', false),
});

export const auth = section('auth', 'Keys of callers.', {
  query_key: oneOf(['allow', 'refuse'], 'Whether a key may come as the query parameter api_key.', 'allow'),
  default_expiry: section('auth.default_expiry', 'How long new keys are valid, by kind.', {
    account: kindExpiry('account'),
    agent: kindExpiry('agent'),
    administrative: kindExpiry('administrative'),
    profile: kindExpiry('profile'),
  }),
  profiles: list('Profiles beside mcp_readonly, mcp_operator and mcp_agent.', profile),
});

const attribute = Type.Unsafe<string | number | boolean>({
  type: ['string', 'number', 'boolean'],
  description: 'Text, a number or a boolean.',
});

const agent = record('an agent', 'An agent that may act in the workspace.', {
  id: text(personId, personWords, 'Id of the agent.'),
  team: Type.Optional(Type.String({ minLength: 1, description: 'Team; policies select by it.' })),
  owner: Type.Optional(
    text(personId, personWords, 'User who answers for the agent, and can never approve what it asks.'),
  ),
  roles: list('Roles of the agent; policies select by them.', role('A role.')),
  attributes: Type.Record(Type.String(), attribute, {
    description: 'Facts about the agent for policies.',
    default: {},
  }),
  disabled: flag('Its calls are refused.', false),
});

export const workspace = record(
  'a workspace',
  'A workspace: keys, budgets and effects of one do not meet those of another.',
  {
    id: text(
      '^[a-z0-9][a-z0-9_-]{0,62}$',
      "an id of lower-case letters, digits, '_' and '-' (at most 63)",
      'Id, as in /v1/workspaces/{id}.',
    ),
    env: text(slug, slugWords, 'The fact env of its calls; an upstream may override it.', 'prod'),
    agents: list('Agents of the workspace.', agent),
  },
);
