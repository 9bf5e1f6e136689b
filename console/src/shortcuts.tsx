import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

const SHORTCUTS: readonly (readonly [
  where: string,
  keys: readonly (readonly [keys: readonly string[], does: string])[],
])[] = [
  ['Everywhere', [[['?'], 'These shortcuts']]],
  [
    'Inbox',
    [
      [['j'], 'The next request'],
      [['k'], 'The one before'],
      [['x'], 'Choose it, to decide several that are alike'],
      [['a'], 'Go to Approve; Enter approves'],
      [['r'], 'Go to Reject; Enter rejects'],
    ],
  ],
  [
    'Effects, in the list',
    [
      [['j', '↓'], 'The next effect'],
      [['k', '↑'], 'The one before'],
      [['Enter'], 'Open it'],
    ],
  ],
];

/** Letters that act wherever the focus is can be switched off: speech input types them by accident (WCAG 2.1.4). */
const SETTING = 'svc-shortcuts';

/** Calls what a key does on this screen, unless somebody types, or has switched shortcuts off. */
export function useShortcuts(press: (key: string) => boolean): void {
  const latest = useRef(press);
  latest.current = press;
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const isTyping =
        event.target instanceof HTMLElement &&
        event.target.matches('input:not([type=checkbox]), textarea, select, dialog *, dialog');
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem(SETTING) === 'off') return;
      if (latest.current(event.key)) event.preventDefault();
    };
    document.addEventListener('keydown', pressed);
    return () => document.removeEventListener('keydown', pressed);
  }, []);
}

/** A button that shows the shortcuts, as `?` does. */
export function Shortcuts(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOn, setOn] = useState(() => localStorage.getItem(SETTING) !== 'off');
  const show = (): void => dialog.current?.showModal();
  useShortcuts((key) => {
    if (key === '?') show();
    return key === '?';
  });
  const choose = (on: boolean): void => {
    if (on) localStorage.removeItem(SETTING);
    else localStorage.setItem(SETTING, 'off');
    setOn(on);
  };
  return (
    <>
      <button type="button" class="plain keys" onClick={show}>
        Shortcuts <kbd>?</kbd>
      </button>
      <dialog ref={dialog} aria-labelledby="shortcuts">
        <div class="stack">
          <h2 id="shortcuts">Shortcuts</h2>
          {SHORTCUTS.map(([where, keys]) => (
            <section key={where}>
              <h3>{where}</h3>
              <dl class="keys">
                {keys.map(([names, does]) => (
                  <div key={does}>
                    <dt>
                      {names.map((name) => (
                        <kbd key={name}>{name}</kbd>
                      ))}
                    </dt>
                    <dd>{does}</dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
          <label class="check">
            <input type="checkbox" checked={isOn} onChange={({ currentTarget }) => choose(currentTarget.checked)} />
            <span>Single keys act, in this browser</span>
          </label>
          <form method="dialog">
            <button class="main">Close</button>
          </form>
        </div>
      </dialog>
    </>
  );
}
