# Three stages: build with all dependencies, keep what runs, copy it onto an image without a shell.
# Both bases are named by digest, as `name@sha256:…`, and have no default: see docs/operating/image.md.
ARG NODE_IMAGE
ARG RUN_IMAGE

FROM ${NODE_IMAGE} AS build
ARG NODE_IMAGE
ARG RUN_IMAGE
# `allow` is for a base that was built here and has no digest of a registry.
ARG UNPINNED=refuse
RUN for image in "$NODE_IMAGE" "$RUN_IMAGE"; do if ! printf '%s' "$image" | grep -Eq '@sha256:[0-9a-f]{64}$' && [ "$UNPINNED" != allow ]; then echo "the base $image is not named by digest" >&2; exit 1; fi; done
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
COPY client/package.json client/
COPY packages packages
COPY console/package.json console/
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY client client
COPY console console
COPY src src
RUN npm run build

FROM ${NODE_IMAGE} AS dependencies
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
# The bundle has all packages but those that are native or find files of their own.
# @photostructure/sqlite is the SQLite of Node 20; this image has Node 24, whose own is used.
RUN npm ci --ignore-scripts --omit=dev && rm -rf node_modules/@photostructure node_modules/node-addon-api node_modules/node-gyp-build

FROM ${RUN_IMAGE}
WORKDIR /srv
COPY --from=dependencies --chown=0:0 /build/node_modules node_modules
COPY --from=build --chown=0:0 /build/dist/src dist/src
COPY --from=build --chown=0:0 /build/dist/bundle dist/bundle
COPY --chown=0:0 package.json ./
COPY --chown=0:0 bin bin
COPY --chown=0:0 docs/errors docs/errors
COPY --chown=0:0 schemas schemas
COPY --chown=0:0 config config
COPY --chown=0:0 policies policies
# The root file system may be read-only: everything that is written is under /data (store, secrets, receipt keys).
# Mount a volume there that belongs to 65532, and the configuration at /config/gateway.yaml.
USER 65532:65532
VOLUME /data
EXPOSE 8080
ENV NODE_ENV=production
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s CMD ["/nodejs/bin/node", "-e", "fetch('http://127.0.0.1:8080/livez').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["/nodejs/bin/node", "/srv/bin/svc.mjs"]
CMD ["start", "--config", "/config/gateway.yaml"]
