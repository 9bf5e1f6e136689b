import { createHash } from 'node:crypto';
import { timeFromWire, timeToWire } from '../../effects/wire/time.ts';
import { type Html, html, htmlText } from './html.ts';

const STYLE = html`:root{color-scheme:light dark;--ground:light-dark(#f6f6f9,#101218);--card:light-dark(#fff,#181b23);--line:light-dark(#dcdee8,#2d3240);--ink:light-dark(#1a1d29,#e9ebf2);--faint:light-dark(#565c70,#a3a9bb);--accent:light-dark(#3b46c4,#a5adff);--wait:light-dark(#1f5cae,#86b8ff);--wait-ground:light-dark(#e4eefb,#12263f);--yes:light-dark(#0d6b41,#62d69c);--yes-ground:light-dark(#e2f4ea,#10301f);--bad:light-dark(#b0202e,#ff8f98);--bad-ground:light-dark(#fde7e8,#3b151a);--stop:light-dark(#7a4b00,#f0b45c);--stop-ground:light-dark(#fbf0dc,#35260c)}
*{box-sizing:border-box}
body{font:.9375rem/1.5 system-ui,sans-serif;margin:0;background:var(--ground);color:var(--ink);overflow-wrap:anywhere}
main{max-width:40rem;margin:0 auto;padding:1rem}
@media(min-width:60rem){main.two{max-width:68rem}main.two .below{columns:2;column-gap:1.5rem}main.two .below>section{break-inside:avoid}}
h1{font-size:.9375rem;margin:0;display:inline-block;padding:.125rem .625rem;border-radius:999px;font-weight:600}
h2{font-size:.9375rem;margin:0 0 .5rem}p{margin:0}a{color:var(--accent)}
.wait h1,.plain h1{background:var(--wait-ground);color:var(--wait)}.yes h1{background:var(--yes-ground);color:var(--yes)}.bad h1{background:var(--bad-ground);color:var(--bad)}.stop h1{background:var(--stop-ground);color:var(--stop)}
.card,.below>section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1rem;margin:0 0 1rem}
.card{display:grid;gap:.625rem}.card>*{min-width:0}
.what{font-size:1.25rem;font-weight:650;line-height:1.3}.amount{font-size:clamp(1.25rem,7.5vw,2rem);font-weight:700;line-height:1.1;font-variant-numeric:tabular-nums}
.what,.amount,td,dd,pre,li,.notice,.who{unicode-bidi:isolate}
.num{white-space:nowrap}.said{font-weight:600}
.faint,dt{color:var(--faint);font-size:.8125rem}
.notice{border-left:4px solid var(--wait);background:var(--wait-ground);border-radius:0 8px 8px 0;padding:.625rem .75rem;margin:0 0 1rem}.card .notice{margin:0}
.notice table{margin-top:.5rem}
dl{margin:0;display:grid;gap:.375rem}dd{margin:0}
dl.pairs{grid-template-columns:max-content minmax(0,1fr);gap:.375rem .75rem;align-items:baseline}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line)}th{font-weight:600;font-size:.8125rem;color:var(--faint)}tr:last-child td{border-bottom:0}.differ{table-layout:fixed}.differ th:first-child{width:33%}td:first-child{min-width:9rem}
pre{font:.8125rem/1.5 ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,monospace;margin:0;white-space:pre-wrap}
ul{margin:0;padding-left:1.1rem}
.fault{color:var(--bad);font-size:.875rem;margin:.25rem 0 0}[aria-invalid=true]{border-color:var(--bad);border-width:2px}
.repeat{border-left-color:var(--stop);background:var(--stop-ground);font-weight:600}
label{display:block;font-size:.8125rem;color:var(--faint);margin:0 0 .25rem}
input,textarea,select,button{font:inherit;width:100%;padding:.625rem .75rem;border:1px solid var(--faint);border-radius:8px;background:var(--card);color:inherit}
select+p{margin-top:.375rem}
form{display:grid;gap:.75rem}[hidden]{display:none}.fields{display:grid;gap:.5rem}
.both{display:grid;grid-template-columns:1fr minmax(6rem,auto);gap:.75rem}.both :only-child{grid-column:1/-1}
button{min-height:48px;font-weight:650;cursor:pointer}
button.yes{background:#0d6b41;border-color:#0d6b41;color:#fff}button.no{background:transparent;border-color:var(--bad);color:var(--bad)}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
details>summary{cursor:pointer;color:var(--accent)}
footer{display:flex;gap:.75rem;align-items:center;justify-content:space-between;font-size:.8125rem;color:var(--faint)}footer button{width:auto;min-height:44px}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:center;font-size:.8125rem}nav a{min-height:44px;display:flex;align-items:center}`;

/**
 * Times in the zone of the reader, with the one that the server wrote on hover; without scripts that one stays. A question
 * whose time is over has no answers any more. What a button approves stands on it: as it was asked, or
 * what was written in the one field that was changed, letter by letter.
 */
const SCRIPT = html`for(const t of document.querySelectorAll("time")){const d=new Date(t.dateTime);t.title=t.textContent;t.textContent=new Intl.DateTimeFormat(undefined,{weekday:"short",day:"numeric",month:"short",hour:"2-digit",minute:"2-digit",timeZoneName:"short"}).format(d)}const asked=document.querySelector("form[data-left]");if(asked&&2**31>asked.dataset.left)setTimeout(()=>{asked.hidden=true;asked.nextElementSibling.hidden=false},asked.dataset.left);const yes=document.querySelector("[data-asked]");if(yes){const changed=yes.textContent;const isAsAsked=(field)=>field.value===(field.defaultValue??(field.querySelector("[selected]")??field[0]).value);(yes.form.oninput=()=>{const edited=[...yes.form.querySelectorAll(".fields :is(input,textarea,select)")].filter((field)=>!isAsAsked(field));const[only]=edited;yes.textContent=only===undefined?yes.dataset.asked:edited.length>1||only.type!=="text"&&only.type!=="number"||only.value.trim()===""||only.value.length>20?changed:changed.replace("as written above",()=>"with "+only.labels[0].textContent.split(":")[0]+" "+only.value)})()}`;

/**
 * The button that lets a passkey sign the challenge of the page, and sends what it signed with the form: base64url, as
 * the other side reads it (WebAuthn, section 6). Without passkeys, or without scripts, it stays hidden.
 */
const PASSKEY_SCRIPT = html`const form=document.getElementById("passkey");if(window.PublicKeyCredential){form.hidden=false;const bytes=(text)=>Uint8Array.from(atob(text.replaceAll("-","+").replaceAll("_","/")),(c)=>c.charCodeAt(0));const write=(name,of)=>{form.elements[name].value=btoa(String.fromCharCode(...new Uint8Array(of))).replaceAll("+","-").replaceAll("/","_").replaceAll("=","")};form.querySelector("button").onclick=async()=>{try{const{challenge,party}=form.dataset;const made=await navigator.credentials.get({publicKey:{challenge:bytes(challenge),rpId:party,userVerification:"required"}});write("credential",made.rawId);write("client_data",made.response.clientDataJSON);write("authenticator_data",made.response.authenticatorData);write("signature",made.response.signature);form.submit()}catch{form.querySelector("[role=alert]").textContent="No passkey was used. Try again, or show your key."}}}`;

const digestOf = (of: Html): string => createHash('sha256').update(htmlText(of)).digest('base64');

/** Nothing comes from elsewhere. The one style and the two scripts are named by their digests; no script asks for anything. */
const CSP = [
  "default-src 'none'",
  `style-src 'sha256-${digestOf(STYLE)}'`,
  `script-src ${[SCRIPT, PASSKEY_SCRIPT].map((script) => `'sha256-${digestOf(script)}'`).join(' ')}`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Headers of all pages: they go into no frame, and tell no other host where they are. */
export const GUARDED = {
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'x-robots-tag': 'noindex',
} as const;

/**
 * Headers of every answer below `/approve`. The address of the page goes to no other host. (Under `no-referrer` browsers
 * also leave out who sends a form, `Origin: null`, and the door refuses what comes from nowhere.)
 */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': CSP,
  'cache-control': 'no-store',
  ...GUARDED,
} as const;

/** The form of a passkey, which has its script beside it. @param content what the form has */
export function passkeyForm(action: string, challenge: string, party: string, content: Html): Html {
  return html`<form method="post" action="${action}" id="passkey" data-challenge="${challenge}" data-party="${party}" hidden>
${content}
</form><script>${PASSKEY_SCRIPT}</script>`;
}

/** A whole page. @param content with its heading */
export function page(title: string, content: Html, width: 'one' | 'two' = 'one'): string {
  return htmlText(html`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title}</title>
<style>${STYLE}</style></head>
<body><main class="${width}">
${content}
</main><script>${SCRIPT}</script></body>
</html>
`);
}

/** How long something lasts, roughly. */
export function spanText(ms: number): string {
  const minutes = Math.max(1, Math.ceil(ms / 60_000));
  if (minutes < 120) return `${minutes} min`;
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  return rest === 0 || hours >= 48 ? `${hours} h` : `${hours} h ${rest} min`;
}

/** A sentence of the API, with its times as this page writes them. */
export function withTimes(text: string): Html {
  const parts = text.split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)/);
  return html`${parts.map((part, n) => {
    // People write what looks like one into reasons.
    const at = n % 2 === 0 ? null : timeFromWire(part);
    return at === null ? html`${part}` : timeOf(at);
  })}`;
}

/** A time: in UTC as it is written, in the zone of the reader where scripts run. */
export function timeOf(ms: number): Html {
  const iso = timeToWire(ms);
  return html`<time datetime="${iso}">${iso.slice(0, 16).replace('T', ' ')} UTC</time>`;
}
