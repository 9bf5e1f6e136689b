import { expect, it } from 'vitest';
import { keyOf, workspaceTag } from '../../src/stores/redis/names.ts';

it('workspaces whose names differ share no keys, also where only case or what Redis reads as a tag differs', () => {
  const names = ['shop', 'Shop', 'SHOP', 'shop-1', 'shop_1', 'shop}', 'sh{op}', '', '_', '%5F'];
  expect(new Set(names.map(workspaceTag)).size).toBe(names.length);
  expect(new Set(names.map((name) => keyOf(name, 'meta'))).size).toBe(names.length);
});
