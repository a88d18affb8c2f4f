# with-daemon.sh TENURE COMMAND...: runs a command against a daemon of its own.
set -eu
tenure=$1
shift
folder=$(mktemp -d)
"$tenure" serve --store memory: --data-dir "$folder" --listen 127.0.0.1:0 > "$folder/url" 2> "$folder/log" &
daemon=$!
trap 'kill $daemon 2> /dev/null || true; rm -rf "$folder"' EXIT
until [ -s "$folder/url" ]; do
    kill -0 $daemon || { cat "$folder/log" >&2; exit 1; }
    sleep 0.05
done
TENURE_STORE=$(head -n 1 "$folder/url")
export TENURE_STORE
"$@"
