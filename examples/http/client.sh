#!/usr/bin/env bash
# A member of a group with curl and bash alone.
#
# It joins, beats in the background, claims a device, asks for a lease, works for as long as that is certainly its own, and
# leaves on TERM or INT.
#
#   TENURE_STORE=http://127.0.0.1:7717 bash client.sh GROUP MEMBER
#
# Exit codes: 0 it left, 3 its tenure is over (start it again, and it joins anew), 1 anything else.
#
# A shell is slow and its clock is coarse. For one command that should be known to be alive, `tenure join -- CMD` does all
# of this better.
set -uo pipefail

[[ -z ${TENURE_URL:-} ]] || echo "TENURE_URL is an old name: use TENURE_STORE" >&2
url=${TENURE_STORE:-${TENURE_URL:-http://127.0.0.1:7717}}
group=$1 member=$2
ttl=${TENURE_TTL:-30s}
ttl=$((${ttl%s} * 1000))
state=$(mktemp -d) || exit 1

# call METHOD PATH [BODY]: prints the body of the answer; fails when there is none, or when it is a refusal.
call() {
    local args=(--silent --show-error --fail-with-body --max-time "${timeout:-0.5}" --request "$1" "$url$2")
    # A secret in an argument is seen by everyone who can list processes.
    [[ -n ${TENURE_TOKEN:-} ]] && args+=(--header @<(printf 'Authorization: Bearer %s\n' "$TENURE_TOKEN"))
    [[ -n ${3:-} ]] && args+=(--header 'Content-Type: application/json' --data "$3")
    curl "${args[@]}" 2>>"$state/curl"
}

# field NAME: the value of a field of the JSON on stdin. Enough for flat answers whose texts are names and numbers.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# Milliseconds on a clock that goes on while the machine sleeps.
now() { local up; read -r up _ </proc/uptime; echo "${up/./}0"; }

# verdict: held (act), uncertain (pause), lost (over, for ever). Asks nobody.
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
            # An answer that comes after our time is over revives nothing.
            [[ $(verdict) == lost ]] && return
            echo "$sent" >"$state/new" && mv "$state/new" "$state/confirmed"
            pause=$((ttl / 3))
        elif [[ $(field code <<<"$answer") == tenure_ended ]]; then
            field reason <<<"$answer" >"$state/ended"
            return
        else
            pause=$((ttl / 12)) # Not answered is not refused: try again, sooner.
        fi
    done
}

stopped=
trap 'stopped=1' TERM INT
# A whole ttl counts from when the last call that was confirmed was *sent*: the store counts from later.
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
            # 409 while somebody else has it. Without an answer it is perhaps ours: asked again, it says so.
            token=$(call POST "/v1/groups/$group/leases/report/acquire" "{\"tenure\": \"$tenure\"}" | field token)
        else
            # Give the token to whatever is written to, so that it can refuse whoever comes late.
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
