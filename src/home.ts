/** The folder of the product, seen from `src/` and from where it is compiled to: what is shipped beside the code. */
export const HOME = new URL(import.meta.url.endsWith('.js') ? '../../' : '../', import.meta.url);

/** The compiled thread beside a module, or its source if Node runs TypeScript; `null`: no thread can run the source. */
export function threadBeside(module: string, name: string): URL | null {
  if (module.endsWith('.js')) return new URL(`./${name}.js`, module);
  const runsSource = 'typescript' in process.features && process.features.typescript === 'strip';
  return runsSource ? new URL(`./${name}.ts`, module) : null;
}
