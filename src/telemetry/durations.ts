/** A Prometheus histogram of durations. */
export interface Durations {
  /** @param labels the value of each label, separated by line ends */
  observe(labels: string, durationMs: number): void;
  /** All observations, in the Prometheus text format. */
  render(): string;
}

interface Series {
  /** Number of observations in each bucket. The last bucket is for those above all bounds. */
  readonly within: number[];
  sum: number;
}

/**
 * A histogram for the path of a call, where cost matters: prom-client checks and hashes an object of labels for each
 * observation, and a call makes eight.
 * @param options.bounds seconds, rising
 */
export function createDurations(options: {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly bounds: readonly number[];
}): Durations {
  const { name, help, labelNames, bounds } = options;
  const series = new Map<string, Series>();

  const add = (labels: string): Series => {
    const made: Series = { within: Array.from({ length: bounds.length + 1 }, () => 0), sum: 0 };
    series.set(labels, made);
    return made;
  };
  const linesOf = (labels: string, { within, sum }: Series): readonly string[] => {
    const values = labels.split('\n');
    const named = labelNames.map((label, index) => `${label}="${escaped(values[index] ?? '')}"`).join(',');
    let count = 0;
    const lines = within.map((more, index) => {
      count += more;
      return `${name}_bucket{le="${bounds[index] ?? '+Inf'}",${named}} ${count}`;
    });
    return [...lines, `${name}_sum{${named}} ${sum}`, `${name}_count{${named}} ${count}`];
  };

  return {
    observe(labels, durationMs) {
      const of = series.get(labels) ?? add(labels);
      const seconds = durationMs / 1000;
      let index = 0;
      while (index < bounds.length && seconds > (bounds[index] ?? 0)) index += 1;
      of.within[index] = (of.within[index] ?? 0) + 1;
      of.sum += seconds;
    },
    render() {
      const lines = [...series].flatMap(([labels, of]) => linesOf(labels, of));
      return [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines].join('\n');
    },
  };
}

function escaped(value: string): string {
  return value.replaceAll('\\', String.raw`\\`).replaceAll('"', String.raw`\"`);
}
