import { Type } from 'typebox';
import { List } from './schema.ts';

const { String: Text, Optional } = Type;

export const Approvers = Type.Object({ roles: List(Text()), users: List(Text()) });
/** Who has to agree, as answers show it. */
export const Requirement = {
  rule: Text(),
  approvers: Approvers,
  quorum: Type.Integer({ minimum: 0 }),
  summary: Text(),
  hours: Optional(Text({ description: 'The schedule of the policy in which its times are counted.' })),
  beyond: Optional(Text({ description: 'The limit that the call would go beyond: `budget:<id>` or `rate:<id>`.' })),
};
