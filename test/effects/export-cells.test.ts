import { expect, it } from 'vitest';
import { cellText } from '../../src/effects/wire/export.ts';

it.each([
  ['=1+2', "'=1+2"],
  ['+1', "'+1"],
  ['-1', "'-1"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['\t=1', "'\t=1"],
  ['\r=1', `"'\r=1"`],
  ['\n=1', `"'\n=1"`],
  ['＝1+2', "'＝1+2"],
  ['＠SUM(A1)', "'＠SUM(A1)"],
  ['=1,"x"', `"'=1,""x"""`],
  ['order-7=8', 'order-7=8'],
])('a text that a spreadsheet would run is marked as text: %j', (text, cell) => {
  expect(cellText(text)).toBe(cell);
});
