import { browserSupportsWebAuthn, startAuthentication } from '@simplewebauthn/browser';
import { createContext, type JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { ask, hooks, Problem, type Session } from './api.ts';
import { Fault } from './parts.tsx';
import icon from './icon.svg';

const Current = createContext<{ readonly session: Session; readonly workspace: string } | null>(null);
export const CurrentProvider = Current.Provider;

/** Who is signed in, and the workspace that is looked at. */
export function useCurrent(): { readonly session: Session; readonly workspace: string } {
  const current = useContext(Current);
  if (current === null) throw new Error('nobody is signed in');
  return current;
}

/** Whether the table of permissions lets this person do something. It only decides what is offered. */
export function useMay(endpoint: string): boolean {
  const { session } = useCurrent();
  return session.may.includes(endpoint);
}

/** What the address has after `#link=`. It is taken out at once, so that nobody copies a link that was used. */
function linkInAddress(): string | null {
  const link = /^#link=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1] ?? null;
  if (link !== null) history.replaceState(null, '', location.pathname);
  return link;
}

/** Signs in: by a link by itself, else by a key. */
export function SignIn({ entered }: { readonly entered: () => void }): JSX.Element {
  const [link] = useState(linkInAddress);
  const [isEntering, setEntering] = useState(link !== null);
  const [fault, setFault] = useState<unknown>(null);

  useEffect(() => {
    document.title = 'Sign in · svc';
    if (link === null) return;
    ask('POST', '/console/session', { link }).then(entered, (error: unknown) => {
      setFault(error);
      setEntering(false);
    });
  }, [link]);

  return (
    <div class="door">
      <main class="card">
        <div class="brand">
          <img src={icon} alt="" /> svc console
        </div>
        {isEntering ? (
          <p role="status">Signing in…</p>
        ) : (
          <>
            <h1>Sign in</h1>
            <Fault of={fault} />
            <PasskeyButton action="Sign in with a passkey" isStepUp={false} done={entered} />
            <KeyForm label="Your API key" action="Sign in" isStepUp={false} done={entered} />
            <p class="faint">
              No key at hand? On the machine that has it, <code>svc console</code> prints a link that signs you in.
            </p>
          </>
        )}
      </main>
    </div>
  );
}

/** Signs in by a passkey of this device. */
function PasskeyButton({ action, isStepUp, done }: Omit<KeyFormOf, 'label'>): JSX.Element | null {
  const [fault, setFault] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const enter = async (): Promise<void> => {
    setBusy(true);
    setFault(null);
    try {
      const { ceremony, challenge, rp_id: rpId } = await ask<Begun>('POST', '/console/passkeys/challenge', {});
      const { id, response } = await startAuthentication({
        optionsJSON: { challenge, rpId, userVerification: 'required' },
      });
      const { clientDataJSON, authenticatorData, signature } = response;
      const assertion = { id, response: { clientDataJSON, authenticatorData, signature } };
      await ask('POST', '/console/session', { passkey: { ceremony, assertion }, step_up: isStepUp });
      done();
    } catch (error) {
      const said = 'No passkey was used: it was cancelled, or this device has none. A key signs you in, too.';
      setFault(error instanceof Problem ? error : new Problem(0, 'passkey_refused', said));
    } finally {
      setBusy(false);
    }
  };
  if (!browserSupportsWebAuthn()) return null;
  return (
    <div class="stack">
      <Fault of={fault} />
      <button type="button" disabled={isBusy} onClick={() => void enter()}>
        {action}
      </button>
    </div>
  );
}

type Begun = Readonly<Record<'ceremony' | 'challenge' | 'rp_id', string>>;

interface KeyFormOf {
  readonly label: string;
  readonly action: string;
  readonly isStepUp: boolean;
  readonly done: () => void;
}

function KeyForm({ label, action, isStepUp, done }: KeyFormOf): JSX.Element {
  const [key, setKey] = useState('');
  const [fault, setFault] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFault(null);
    try {
      await ask('POST', '/console/session', { key: key.trim(), ...(isStepUp ? { step_up: true } : {}) });
      setKey('');
      done();
    } catch (error) {
      setFault(error);
    } finally {
      setBusy(false);
    }
  };

  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      <Fault of={fault} />
      <label>
        <span>{label}</span>
        <input
          name="key"
          type="password"
          required
          ref={input}
          autocomplete="current-password"
          autocapitalize="none"
          spellcheck={false}
          maxLength={200}
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
      </label>
      <button class="main" disabled={isBusy}>
        {action}
      </button>
    </form>
  );
}

/** Asks for the key once, where a session that a link opened is about to let something happen. */
export function StepUp(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [answer, setAnswer] = useState<((shown: boolean) => void) | null>(null);

  useEffect(() => {
    hooks.stepUp = () =>
      new Promise((resolve) => {
        setAnswer(() => resolve);
      });
  }, []);

  useEffect(() => {
    if (answer !== null) dialog.current?.showModal();
  }, [answer]);

  const end = (shown: boolean): void => {
    dialog.current?.close();
    answer?.(shown);
    setAnswer(null);
  };

  return (
    <dialog ref={dialog} aria-labelledby="step-up" onCancel={() => end(false)}>
      {answer !== null && (
        <div class="stack">
          <h2 id="step-up">Show who you are once</h2>
          <p class="faint">
            A link opened this session, and a link does not prove who you are. After this, you will not be asked again
            until you leave.
          </p>
          <KeyForm label="Your API key" action="Go on" isStepUp done={() => end(true)} />
          <PasskeyButton action="Use a passkey" isStepUp done={() => end(true)} />
          <button type="button" onClick={() => end(false)}>
            Cancel
          </button>
        </div>
      )}
    </dialog>
  );
}

/** Who is signed in; `null`: nobody. @throws Problem */
export async function whoIsIn(): Promise<Session | null> {
  try {
    return await ask<Session>('GET', '/console/session');
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return null;
    throw error;
  }
}
