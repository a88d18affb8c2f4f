#!/usr/bin/env bash
# A member of a group, with only curl and bash.
#
# It joins, sends heartbeats in the background, claims a device, acquires a lease, works while its verdict is held, and
# leaves on TERM or INT.
#
#   TENURE_STORE=http://127.0.0.1:7717 bash client.sh GROUP MEMBER
#
# Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
#
# A shell is slow and its clock is coarse. To run one command as a member, use `tenure join -- CMD` instead.
set -uo pipefail

[[ -z ${TENURE_URL:-} ]] || echo "TENURE_URL is an old name: use TENURE_STORE" >&2
url=${TENURE_STORE:-${TENURE_URL:-http://127.0.0.1:7717}}
group=$1 member=$2
ttl=${TENURE_TTL:-30s}
ttl=$((${ttl%s} * 1000))
state=$(mktemp -d) || exit 1

# call METHOD PATH [BODY]: prints the body of the response; fails without a response, or if it is an error.
call() {
    local args=(--silent --show-error --fail-with-body --max-time "${timeout:-0.5}" --request "$1" "$url$2")
    # Arguments are visible in the list of processes, so the token is not one.
    [[ -n ${TENURE_TOKEN:-} ]] && args+=(--header @<(printf 'Authorization: Bearer %s\n' "$TENURE_TOKEN"))
    [[ -n ${3:-} ]] && args+=(--header 'Content-Type: application/json' --data "$3")
    curl "${args[@]}" 2>>"$state/curl"
}

# field NAME: the value of a field of the JSON on stdin. Sufficient for flat responses with names and numbers.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# Milliseconds on a clock that includes suspend.
now() { local up; read -r up _ </proc/uptime; echo "${up/./}0"; }

# verdict: held (work), uncertain (pause), lost (stop for good). No network access.
verdict() {
    local age=$(($(now) - $(<"$state/confirmed")))
    if [[ -s $state/ended ]] || ((age >= ttl)); then echo lost
    elif ((age < ttl - ttl / 12)); then echo held
    else echo uncertain; fi
}

beat() {
    local pause=$((ttl / 3)) sent answer timeout=0.5
    ((ttl < 3000)) && timeout=0.$(printf '%03d' $((ttl / 6)))
    while sleep "$((pause / 1000)).$(printf '%03d' $((pause % 1000)))"; do
        sent=$(now)
        if answer=$(call PUT "/v1/groups/$group/tenures/$tenure/beat"); then
            # A reply that arrives after the ttl does not revive the tenure.
            [[ $(verdict) == lost ]] && return
            echo "$sent" >"$state/new" && mv "$state/new" "$state/confirmed"
            pause=$((ttl / 3))
        elif [[ $(field code <<<"$answer") == tenure_ended ]]; then
            field reason <<<"$answer" >"$state/ended"
            return
        else
            pause=$((ttl / 12)) # No reply is not a refusal: retry sooner.
        fi
    done
}

stopped=
trap 'stopped=1' TERM INT
# The ttl runs from the time at which the last confirmed call was *sent*, which is before the store's start of it.
now >"$state/confirmed"
joined=$(call POST "/v1/groups/$group/members" "{\"member\": \"$member\", \"ttl_ms\": $ttl}") || { cat "$state/curl" >&2; exit 1; }
tenure=$(field tenure <<<"$joined")
echo "joined $tenure"
beat &
beats=$!
trap 'kill "$beats" 2>/dev/null; rm -rf "$state"' EXIT

call PUT "/v1/groups/$group/registries/devices/claims/device-of-$member" "{\"tenure\": \"$tenure\"}" >/dev/null || exit 1
token='' before=''
until [[ -n $stopped ]]; do
    sleep 0.1
    verdict=$(verdict)
    case $verdict in
    lost)
        reason=$(cat "$state/ended" 2>/dev/null)
        echo "lost ${reason:-not confirmed in time}"
        exit 3
        ;;
    uncertain) [[ $before == uncertain ]] || echo paused ;;
    held)
        if [[ -z $token ]]; then
            # 409 while it is held by another member. Without a reply it may be granted: a repeated acquire returns it.
            token=$(call POST "/v1/groups/$group/leases/report/acquire" "{\"tenure\": \"$tenure\"}" | field token)
        else
            # Pass the token to the storage that is written to, so that it can reject late writers.
            echo "work $token"
        fi
        ;;
    esac
    before=$verdict
done
kill "$beats" 2>/dev/null
if [[ -n $token ]]; then
    call POST "/v1/groups/$group/leases/report/release" "{\"tenure\": \"$tenure\", \"token\": $token}" >/dev/null || exit 1
fi
call DELETE "/v1/groups/$group/tenures/$tenure" >/dev/null || exit 1
echo left
