import { Type } from 'typebox';
import { List, MapOf } from './schema.ts';

const Bound = Type.Union([Type.Number(), Type.Literal('asked')]);

export const Bounds = Type.Object({
  min: Type.Optional(Bound),
  max: Type.Optional(Bound),
  one_of: Type.Optional(List(Type.Union([Type.String(), Type.Number(), Type.Boolean()]))),
  max_length: Type.Optional(Type.Integer({ minimum: 0 })),
});

export const Varies = MapOf(
  Bounds,
  'Params in which calls alike may differ, with their bounds. All others are the same.',
);
