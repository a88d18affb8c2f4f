#!/bin/sh
# All checks of the Go package: format, vet for three systems, tests against a daemon with the race detector.
#
#   TENURE_BIN=target/debug/tenure clients/go/check.sh     runs them
#   clients/go/check.sh driver                             builds the conformance driver and prints its path
#
# Nothing is written into the checkout: caches and binaries go to GO_CHECK_TMP (default target/clients/go).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=${GO_CHECK_TMP:-$here/../../target/clients/go}
mkdir -p "$scratch/tmp"
scratch=$(cd "$scratch" && pwd)
export GOCACHE="$scratch/cache" GOTMPDIR="$scratch/tmp" GOFLAGS=-mod=readonly GOPROXY=off GOTOOLCHAIN=local
if [ -n "${TENURE_BIN:-}" ]; then
    TENURE_BIN=$(cd "$(dirname "$TENURE_BIN")" && pwd)/$(basename "$TENURE_BIN")
    export TENURE_BIN
fi
cd "$here"

if [ "${1:-}" = driver ]; then
    go build -o "$scratch/driver" ./conformance
    echo "$scratch/driver"
    exit
fi

: "${TENURE_BIN:?set TENURE_BIN to the path of the tenure binary}"
unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
    echo "not formatted, run gofmt -w: $unformatted" >&2
    exit 1
fi
for system in linux darwin windows; do
    GOOS=$system go vet ./...
done
race=
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then
    race=-race
fi
go test $race -count=1 ./...
