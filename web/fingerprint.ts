/** Ties the built bundle to its sources: `build.json` holds a hash of the sources and one of every file built. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import type { Plugin } from 'vite'

const SOURCES = ['index.html', 'package.json', 'package-lock.json', 'vite.config.ts', 'fingerprint.ts', 'src']

export function fingerprint(outDir: string): Plugin {
  return {
    name: 'fingerprint',
    apply: 'build',
    closeBundle() {
      const built = resolve(outDir)
      const files = Object.fromEntries(
        listFiles(built)
          .filter((path) => path !== join(built, 'build.json'))
          .map((path) => [relative(built, path), digest([path])]),
      )
      const sources = digest(SOURCES.flatMap((path) => listFiles(resolve(path))))
      writeFileSync(join(built, 'build.json'), JSON.stringify({ sources, files }, null, 2) + '\n')
    },
  }
}

function listFiles(path: string): string[] {
  try {
    return readdirSync(path)
      .sort()
      .flatMap((name) => listFiles(join(path, name)))
  } catch {
    return [path]
  }
}

function digest(paths: string[]): string {
  const hash = createHash('sha256')
  for (const path of paths) hash.update(readFileSync(path))
  return hash.digest('hex')
}
