import tailwindcss from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [react(), tailwindcss()],
  // Relative, so that lazy parts and fonts are found below any base path; index.html is made absolute by
  // scripts/finish.mjs, where the server puts its base path in.
  base: './',
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // no data-URL script: the content security policy refuses it
    modulePreload: { polyfill: false }, // it would be an inline script
    reportCompressedSize: false,
  },
  test: { environment: 'node', include: ['src/**/*.test.ts'] },
})
