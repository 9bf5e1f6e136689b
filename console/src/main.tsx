import { QueryClient, QueryClientProvider } from '@tanstack/preact-query';
import { render } from 'preact';
import { App } from './app.tsx';
import { Problem } from './api.ts';

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      // What was refused is refused again; what did not answer may answer later.
      retry: (times, error) => error instanceof Problem && error.status === 0 && times < 5,
    },
  },
});

const root = document.querySelector('#app');
if (root !== null)
  render(
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>,
    root,
  );
