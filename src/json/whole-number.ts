/** Whether the decimal text is a whole number, without any rounding. */
export function isWhole(token: string): boolean {
  const [mantissa = '', exponent = '0'] = token.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.');
  const significant = withoutLastZeros(`${whole}${fraction}`);
  if (significant === '') return true;
  // Digits left of the decimal point once the exponent is applied.
  return whole.length + Number(exponent) >= significant.length;
}

/** A loop instead of `/0+$/`, which takes quadratic time on long runs of zeros that are not at the end. */
function withoutLastZeros(digits: string): string {
  let end = digits.length;
  while (end > 0 && digits.charCodeAt(end - 1) === 0x30) end -= 1;
  return digits.slice(0, end);
}
