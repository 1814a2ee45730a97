import { defineConfig } from 'vite'
import { fingerprint } from './fingerprint.ts'

const outDir = '../src/geomq/dashboard/page'

export default defineConfig({
  base: './',
  build: {
    outDir,
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    license: { fileName: 'licenses.md' },
    chunkSizeWarningLimit: 1000,
  },
  plugins: [fingerprint(outDir)],
})
