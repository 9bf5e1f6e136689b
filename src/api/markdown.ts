/**
 * Renders the part of Markdown that the pages about codes use as HTML: headings, paragraphs, lists, tables, fenced
 * code, `code`, **bold**, *emphasis* and links to paths or https addresses. Everything else is escaped text.
 */
export function markdownToHtml(markdown: string): string {
  const lines = markdown.replaceAll('\r\n', '\n').split('\n');
  const out: string[] = [];
  let at = 0;
  const takeWhile = (belongs: (line: string) => boolean): string[] => {
    const taken: string[] = [];
    for (let line = lines[at]; line !== undefined && belongs(line); line = lines[at]) {
      taken.push(line);
      at += 1;
    }
    return taken;
  };

  while (at < lines.length) {
    const line = lines[at] ?? '';
    const heading = /^(#{1,4}) +(.*)$/.exec(line);
    if (line.trim() === '') {
      at += 1;
    } else if (line.startsWith('```')) {
      at += 1;
      const code = takeWhile((next) => !next.startsWith('```'));
      at += 1;
      out.push(`<pre><code>${escapeHtml(code.join('\n'))}</code></pre>`);
    } else if (heading !== null) {
      at += 1;
      const [, marks = '#', text = ''] = heading;
      out.push(`<h${marks.length}>${inline(text)}</h${marks.length}>`);
    } else if (/^[-*] +/.test(line)) {
      out.push(
        `<ul>${items(
          takeWhile((next) => /^([-*] +| {2,}\S)/.test(next)),
          /^[-*] +/,
        )}</ul>`,
      );
    } else if (/^\d+\. +/.test(line)) {
      out.push(
        `<ol>${items(
          takeWhile((next) => /^(\d+\. +| {2,}\S)/.test(next)),
          /^\d+\. +/,
        )}</ol>`,
      );
    } else if (line.startsWith('|')) {
      out.push(table(takeWhile((next) => next.startsWith('|'))));
    } else {
      const text = takeWhile((next) => next.trim() !== '' && !/^(#{1,4} |```|[-*] |\d+\. |\|)/.test(next));
      // A line that only looks like the start of another block is text.
      if (text.length === 0) at += 1;
      out.push(`<p>${inline((text.length === 0 ? [line] : text).join(' '))}</p>`);
    }
  }
  return out.join('\n');
}

function items(lines: readonly string[], marker: RegExp): string {
  const texts: string[] = [];
  for (const line of lines) {
    if (marker.test(line) || texts.length === 0) texts.push(line.replace(marker, ''));
    else texts[texts.length - 1] += ` ${line.trim()}`;
  }
  return texts.map((text) => `<li>${inline(text)}</li>`).join('');
}

function table(lines: readonly string[]): string {
  const rows = lines
    .filter((line) => !/^\|[\s:|-]+\|?$/.test(line))
    .map((line) => line.replace(/^\||\|\s*$/g, '').split(/(?<!\\)\|/));
  const [head = [], ...body] = rows;
  const cells = (row: readonly string[], tag: 'th' | 'td') =>
    `<tr>${row.map((cell) => `<${tag}>${inline(cell.trim())}</${tag}>`).join('')}</tr>`;
  return `<table><thead>${cells(head, 'th')}</thead><tbody>${body.map((row) => cells(row, 'td')).join('')}</tbody></table>`;
}

/**
 * Code spans and links first, whichever starts earlier: a code span contains no markup, but a label may contain a code
 * span.
 */
function inline(text: string): string {
  return text
    .split(/(`[^`]+`|\[(?:`[^`]+`|[^`\]])*\]\([^()\s]+\))/)
    .map((part) => {
      if (/^`[^`]+`$/.test(part)) return `<code>${escapeHtml(part.slice(1, -1))}</code>`;
      const [, label, href] = /^\[(.*)\]\(([^()\s]+)\)$/.exec(part) ?? [];
      if (label !== undefined && href !== undefined) return link(inline(label), escapeHtml(href));
      return escapeHtml(part)
        .replaceAll(/\*\*([^*]+)\*\*/g, '<strong>$1</strong>')
        .replaceAll(/(^|[\s(])\*([^*\s][^*]*)\*/g, '$1<em>$2</em>');
    })
    .join('');
}

/** A sibling page `x.md` becomes the page `x`. Links with other schemes than https stay text. */
function link(label: string, href: string): string {
  const page = /^(?:\.\/)?([a-z0-9_]+)\.md$/.exec(href)?.[1];
  const to = page === undefined ? href : `/docs/errors/${page}`;
  return /^(?:https:\/\/|\/(?!\/)|#)/.test(to) ? `<a href="${to}">${label}</a>` : label;
}

/** Text that stands in HTML, or in a value between double quotes. */
export function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
