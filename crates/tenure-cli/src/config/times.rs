//! The longest times that follow from the settings and the timing of a member, each with its formula in words.

use std::time::Duration;

use serde::Serialize;
use tenure::fleet::FleetSettings;
use tenure::wire::ms;
use tenure_core::ledger::RosterSettings;
use tenure_core::settling::gap;
use tenure_core::sweep::BURST;
use tenure_core::time::show_duration;
use tenure_core::timing::Timing;

use crate::settings::Settings;

/// The upper bound of a duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Bound {
    /// What.
    pub(super) what: String,
    /// The bound; `None` for a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at_most_ms: Option<u64>,
    /// The bound as text.
    pub(super) shown: String,
    /// Why that long.
    pub(super) how: String,
}

fn bound(what: &str, at_most: Duration, how: impl Into<String>) -> Bound {
    Bound {
        what: what.to_owned(),
        at_most_ms: Some(ms(at_most)),
        shown: show_duration(at_most),
        how: how.into(),
    }
}

/// All of them, for members with this timing.
pub(super) fn of(settings: &Settings, timing: &Timing) -> Vec<Bound> {
    let mut bounds = members(settings, timing);
    bounds.extend(leases(settings, timing));
    bounds.extend(sessions(settings, timing));
    bounds.extend(rosters(settings));
    bounds.extend(outages(settings, timing));
    bounds
}

/// The extra time of a sweep that was not woken early.
fn late(interval: Duration) -> String {
    format!(
        "a sweep that nothing woke comes within {} more (its interval + 10 %)",
        show_duration(interval + interval / 10)
    )
}

fn members(settings: &Settings, timing: &Timing) -> Vec<Bound> {
    let ttl = show_duration(timing.ttl);
    let spare = timing.ttl.saturating_sub(timing.request_timeout + timing.margin);
    let lost = spare.as_nanos() / timing.interval.as_nanos().max(1);
    vec![
        bound(
            "a member that died hard reads as dead",
            timing.ttl,
            format!(
                "ttl {ttl}, if it died just after a heartbeat; ttl - interval ({}) if just before one",
                show_duration(timing.ttl.saturating_sub(timing.interval))
            ),
        ),
        bound(
            "what it had claimed is removed",
            timing.ttl + BURST,
            format!(
                "ttl + {} in which the brake sees a burst whole; {}",
                show_duration(BURST),
                late(settings.janitor_interval)
            ),
        ),
        Bound {
            what: "heartbeats that may be lost in a row".to_owned(),
            at_most_ms: None,
            shown: lost.to_string(),
            how: format!(
                "(ttl - request timeout {} - margin {}) / interval {}",
                show_duration(timing.request_timeout),
                show_duration(timing.margin),
                show_duration(timing.interval)
            ),
        },
    ]
}

fn leases(settings: &Settings, timing: &Timing) -> Vec<Bound> {
    let believed = timing.ttl.saturating_sub(timing.margin);
    let discovery = FleetSettings::default().discovery;
    vec![
        bound(
            "a holder works without an answer",
            believed,
            format!(
                "ttl - margin, from the sending of its last answered heartbeat; it stops {} before another can start",
                show_duration(timing.margin)
            ),
        ),
        bound(
            "another can have a lease of the dead",
            timing.ttl,
            format!(
                "ttl, also after an expel or a supersede; a fleet that no event reaches looks within {} more",
                show_duration(discovery)
            ),
        ),
        bound(
            "no lease is granted after a loss of data",
            settings.max_ttl,
            "max_ttl: the longest that a forgotten holder may still be at work",
        ),
    ]
}

fn sessions(settings: &Settings, timing: &Timing) -> Vec<Bound> {
    let grace = settings.sessions_grace;
    vec![
        bound(
            "a session whose client went is reaped",
            grace,
            format!("sessions.grace; {}", late(settings.reaper_interval)),
        ),
        bound(
            "a session whose front-end died hard is reaped",
            timing.ttl + BURST + grace,
            format!(
                "ttl + {} until its connections are gone + sessions.grace",
                show_duration(BURST)
            ),
        ),
    ]
}

fn rosters(settings: &Settings) -> Vec<Bound> {
    let stale = RosterSettings::default().stale_after;
    let reconcile = settings.roster_reconcile_interval;
    vec![
        bound(
            "a provider who fell silent is offline",
            stale,
            format!(
                "stale_after, {} unless the roster says otherwise; {}",
                show_duration(stale),
                late(settings.roster_auto_offline_interval)
            ),
        ),
        bound(
            "heartbeats of providers that a loss of the hot store costs",
            settings.roster_heartbeat_mirror_interval,
            "roster.heartbeat_mirror_interval: what the ledger has not been told yet",
        ),
        bound(
            "a mirror differs from its ledger unseen",
            reconcile + reconcile / 10,
            "roster.reconcile_interval + 10 %",
        ),
    ]
}

fn outages(settings: &Settings, timing: &Timing) -> Vec<Bound> {
    let unseen = gap(Some(timing.ttl));
    vec![
        bound(
            "the store pauses and nothing follows from it",
            unseen,
            "min(2s, 5/12 of the smallest ttl of the group): costs no member a heartbeat",
        ),
        bound(
            "no member is declared dead after a longer pause",
            timing.ttl,
            "one full ttl from when the store serves again",
        ),
        bound(
            "the brake holds removals back",
            settings.brake_hold,
            "brake.hold; it lifts earlier as members return, or by `tenure sweep --force`",
        ),
        bound(
            "a shutdown waits for requests",
            settings.drain,
            "drain; a second signal ends it at once",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;

    #[test]
    fn the_times_follow_from_the_settings() {
        let settings = Settings::load(&Flags::default(), &|_| None).unwrap();
        let bounds = of(&settings, &Timing::for_ttl(Duration::from_secs(30)));
        let of = |what: &str| {
            let mut found = bounds.iter().filter(|bound| bound.what.contains(what));
            found.next().unwrap_or_else(|| panic!("{what}")).shown.clone()
        };
        for (what, shown) in [
            ("died hard reads", "30s"),
            ("claimed is removed", "30250ms"),
            ("heartbeats that may be lost", "2"),
            ("works without an answer", "27500ms"),
            ("another can have", "30s"),
            ("loss of data", "2m"),
            ("client went", "1m"),
            ("front-end died", "90250ms"),
            ("fell silent", "1m"),
            ("pauses", "2s"),
        ] {
            assert_eq!(of(what), shown, "{what}");
        }
    }
}
