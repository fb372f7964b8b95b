import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createRoot } from 'react-dom/client'
import { Router } from 'wouter'
import { BASE, Problem } from './api/client'
import { Pages } from './Pages'
import { applyTheme } from './state/prefs'
import './style.css'

applyTheme()
const cache = new QueryClient({
  defaultOptions: {
    queries: {
      // Frames keep what is shown true; focus alone is no reason to ask again.
      staleTime: 10_000, refetchOnWindowFocus: false,
      retry: (count, error) => error instanceof Problem && (error.status === 0 || error.status === 503) && count < 2,
    },
  },
})
createRoot(document.getElementById('root')!).render(
  <QueryClientProvider client={cache}>
    <Router base={BASE}><Pages /></Router>
  </QueryClientProvider>,
)
