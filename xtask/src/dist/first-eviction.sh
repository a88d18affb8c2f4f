#!/bin/sh
# From an installed program to the first eviction: `first-eviction.sh TENURE`. It starts a daemon and a member that claims a
# key, kills the member, and waits for the event that removes the claim.
set -eu
tenure=$1
PATH=$(dirname "$tenure"):$PATH
folder=$(mktemp -d)
daemon=
trap 'test -z "$daemon" || kill "$daemon"; rm -rf "$folder"' EXIT
cd "$folder"

# The daemon prints its address when it serves.
tenure serve --listen 127.0.0.1:0 --data-dir data >address 2>log &
daemon=$!
until test -s address; do
    kill -0 "$daemon" || { cat log >&2; exit 1; }
    sleep 0.1
done
TENURE_STORE=$(cat address)
export TENURE_STORE

tenure join --group ingest --member gw-1 --ttl 1s -- \
    sh -c 'tenure claim devices cam-17 >claimed && exec sleep 600' &
member=$!
until test -s claimed; do
    kill -0 "$member"
    sleep 0.1
done
kill -KILL "$member"

until tenure events --group ingest >events && grep ' evicted ' events; do
    sleep 0.1
done
