/** The folder of the product, seen from `src/` and from where it is compiled to: what is shipped beside the code. */
export const HOME = new URL(import.meta.url.endsWith('.js') ? '../../' : '../', import.meta.url);
