//! The scripts, one per verb. Each is assembled from the shared prelude and its own text when a store is opened.

use std::sync::Arc;

use crate::script::Script;

const CLOCK: &str = include_str!("scripts/clock.lua");
#[cfg(feature = "test-clock")]
const TEST_CLOCK: &str = include_str!("scripts/test_clock.lua");
const STATE: &str = include_str!("scripts/state.lua");
const PULSE: &str = include_str!("scripts/pulse.lua");
const LIB: &str = include_str!("scripts/lib.lua");
const GROUP: &str = include_str!("scripts/group.lua");
const READ: &str = include_str!("scripts/read.lua");
const STATUS: &str = include_str!("scripts/status.lua");
const ROSTER_ROW: &str = include_str!("scripts/roster_row.lua");
const OFFLINE: &str = include_str!("scripts/offline.lua");
const ROSTER: &str = include_str!("scripts/roster.lua");
const ROSTER_READ: &str = include_str!("scripts/roster_read.lua");
const SESSION: &str = include_str!("scripts/session.lua");
const LEASE: &str = include_str!("scripts/lease.lua");
const QUEUE: &str = include_str!("scripts/queue.lua");
const RESCORE: &str = include_str!("scripts/rescore.lua");
const SESSION_DATA: &str = include_str!("scripts/session_data.lua");

/// Makes the rest of a script a function of its own. A step creates about 150 closures. For each local that one captures,
/// Lua 5.1 searches the captured locals of the same function one by one, but copies those of an outer function. Without
/// this, a step that does nothing costs a third more.
const NEST: &str = "\nreturn (function()\n";
const END: &str = "\nend)()\n";

/// Whether a step looks for a gap at once, or only if its beats must.
const LOOKS: &str = "Gap.RENEWS = false\n";
const RENEWS: &str = "Gap.RENEWS = true\n";

/// The keys outside the groups, which steps read and write beside them, on the same server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoreKeys {
    OneServer,
    /// Each primary has its own.
    Cluster,
}

impl StoreKeys {
    pub(crate) fn of(cluster: bool) -> Self {
        if cluster { Self::Cluster } else { Self::OneServer }
    }

    fn text(self) -> &'static str {
        match self {
            Self::OneServer => include_str!("scripts/one_server.lua"),
            Self::Cluster => include_str!("scripts/cluster.lua"),
        }
    }
}

/// All scripts of a store.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) join: Arc<Script>,
    pub(crate) beat: Arc<Script>,
    pub(crate) end: Arc<Script>,
    pub(crate) set_labels: Arc<Script>,
    pub(crate) members_of: Arc<Script>,
    pub(crate) claim: Arc<Script>,
    pub(crate) release_claim: Arc<Script>,
    pub(crate) claims_by_key: Arc<Script>,
    pub(crate) tenures_of: Arc<Script>,
    pub(crate) acquire: Arc<Script>,
    pub(crate) release_leases: Arc<Script>,
    pub(crate) revoke: Arc<Script>,
    pub(crate) withdraw: Arc<Script>,
    pub(crate) leases_by_name: Arc<Script>,
    pub(crate) put_target: Arc<Script>,
    pub(crate) remove_target: Arc<Script>,
    pub(crate) targets_by_name: Arc<Script>,
    pub(crate) attach: Arc<Script>,
    pub(crate) detach: Arc<Script>,
    pub(crate) patch_session: Arc<Script>,
    pub(crate) delete_session: Arc<Script>,
    pub(crate) sessions_by_name: Arc<Script>,
    pub(crate) session_names: Arc<Script>,
    pub(crate) orphans: Arc<Script>,
    pub(crate) session_stats: Arc<Script>,
    pub(crate) put_providers: Arc<Script>,
    pub(crate) seat: Arc<Script>,
    pub(crate) heartbeat: Arc<Script>,
    pub(crate) available: Arc<Script>,
    pub(crate) availability: Arc<Script>,
    pub(crate) look: Arc<Script>,
    pub(crate) roster_stats: Arc<Script>,
    pub(crate) stamp: Arc<Script>,
    pub(crate) pending_offline: Arc<Script>,
    pub(crate) offline_done: Arc<Script>,
    pub(crate) put_roster_settings: Arc<Script>,
    pub(crate) retime: Arc<Script>,
    pub(crate) turn: Arc<Script>,
    pub(crate) mark_seeded: Arc<Script>,
    pub(crate) verify_roster: Arc<Script>,
    pub(crate) scan: Arc<Script>,
    pub(crate) events: Arc<Script>,
    pub(crate) tick: Arc<Script>,
    pub(crate) status: Arc<Script>,
    pub(crate) end_lapsed: Arc<Script>,
    pub(crate) release: Arc<Script>,
    pub(crate) reap: Arc<Script>,
    pub(crate) reconcile: Arc<Script>,
    pub(crate) beat_pulse: Arc<Script>,
    pub(crate) due_groups: Arc<Script>,
    pub(crate) settle: Arc<Script>,
    pub(crate) forget_group: Arc<Script>,
    pub(crate) due: Arc<Script>,
    pub(crate) unreleased: Arc<Script>,
}

/// What every script begins with.
struct Assembly(String);

impl Assembly {
    fn change(&self, name: &'static str, text: &str) -> Arc<Script> {
        let parts = [
            &self.0, PULSE, STATE, ROSTER_ROW, LOOKS, LIB, NEST, GROUP, NEST, OFFLINE, text, END, END,
        ];
        Arc::new(Script::new(name, &parts))
    }

    fn read(&self, name: &'static str, text: &str) -> Arc<Script> {
        Arc::new(Script::new(name, &[&self.0, PULSE, STATE, READ, text]))
    }

    /// The fast path of a batch runs before the full script.
    fn quick(&self, name: &'static str, looks: &str, fast: &str, text: &str) -> Arc<Script> {
        let parts = [
            &self.0, PULSE, STATE, ROSTER_ROW, looks, fast, LIB, NEST, GROUP, NEST, OFFLINE, text, END, END,
        ];
        Arc::new(Script::new(name, &parts))
    }
}

impl Scripts {
    /// Assembles the scripts for the server's clock or a test clock.
    pub(crate) fn new(test_clock: bool, keys: StoreKeys) -> Self {
        let assembly = Assembly(format!("{}{}", keys.text(), clock(test_clock)));
        let change = |name, text: &str| assembly.change(name, text);
        let read = |name, text: &str| assembly.read(name, text);
        let quick = |name, looks: &str, fast: &str, text: &str| assembly.quick(name, looks, fast, text);
        let change_leases = |name, text: &str| change(name, &[LEASE, QUEUE, text].concat());
        let change_roster = |name, text: &str| change(name, &[ROSTER, text].concat());
        let read_roster = |name, text: &str| read(name, &[ROSTER_ROW, ROSTER_READ, text].concat());
        Self {
            join: change_leases("join", include_str!("scripts/join.lua")),
            beat: quick(
                "beat",
                RENEWS,
                include_str!("scripts/beat_fast.lua"),
                &[LEASE, QUEUE, include_str!("scripts/beat.lua")].concat(),
            ),
            end: change_leases("end", include_str!("scripts/end.lua")),
            set_labels: change("set_labels", include_str!("scripts/set_labels.lua")),
            members_of: read("members_of", include_str!("scripts/members_of.lua")),
            claim: change("claim", include_str!("scripts/claim.lua")),
            release_claim: change("release_claim", include_str!("scripts/release_claim.lua")),
            claims_by_key: read("claims_by_key", include_str!("scripts/claims_by_key.lua")),
            tenures_of: read("tenures_of", include_str!("scripts/tenures_of.lua")),
            acquire: change_leases("acquire", include_str!("scripts/acquire.lua")),
            release_leases: change_leases("release_leases", include_str!("scripts/release_leases.lua")),
            revoke: change_leases("revoke", include_str!("scripts/revoke.lua")),
            withdraw: change_leases("withdraw", include_str!("scripts/withdraw.lua")),
            leases_by_name: read("leases_by_name", include_str!("scripts/leases_by_name.lua")),
            put_target: change("put_target", include_str!("scripts/put_target.lua")),
            remove_target: change("remove_target", include_str!("scripts/remove_target.lua")),
            targets_by_name: read("targets_by_name", include_str!("scripts/targets_by_name.lua")),
            attach: change(
                "attach",
                &[SESSION, SESSION_DATA, include_str!("scripts/attach.lua")].concat(),
            ),
            detach: change("detach", &[SESSION, include_str!("scripts/detach.lua")].concat()),
            patch_session: change(
                "patch_session",
                &[SESSION, SESSION_DATA, include_str!("scripts/patch_session.lua")].concat(),
            ),
            delete_session: change(
                "delete_session",
                &[SESSION, include_str!("scripts/delete_session.lua")].concat(),
            ),
            sessions_by_name: read("sessions_by_name", include_str!("scripts/sessions_by_name.lua")),
            session_names: read("session_names", include_str!("scripts/session_names.lua")),
            orphans: read("orphans", include_str!("scripts/orphans.lua")),
            session_stats: read("session_stats", include_str!("scripts/session_stats.lua")),
            put_providers: change_roster("put_providers", include_str!("scripts/put_providers.lua")),
            seat: change_roster("seat", include_str!("scripts/seat.lua")),
            heartbeat: quick(
                "heartbeat",
                LOOKS,
                include_str!("scripts/heartbeat_fast.lua"),
                &[ROSTER, include_str!("scripts/heartbeat.lua")].concat(),
            ),
            available: read_roster("available", include_str!("scripts/available.lua")),
            availability: read_roster("availability", include_str!("scripts/availability.lua")),
            look: read_roster("look", include_str!("scripts/look.lua")),
            roster_stats: read_roster("roster_stats", include_str!("scripts/roster_stats.lua")),
            stamp: read_roster("stamp", include_str!("scripts/stamp.lua")),
            pending_offline: change_roster("pending_offline", include_str!("scripts/pending_offline.lua")),
            offline_done: change_roster("offline_done", include_str!("scripts/offline_done.lua")),
            put_roster_settings: change_roster("put_roster_settings", include_str!("scripts/put_roster_settings.lua")),
            retime: change_roster("retime", include_str!("scripts/retime.lua")),
            turn: change_roster("turn", include_str!("scripts/turn.lua")),
            mark_seeded: change_roster("mark_seeded", include_str!("scripts/mark_seeded.lua")),
            verify_roster: change_roster("verify_roster", include_str!("scripts/verify_roster.lua")),
            scan: read("scan", include_str!("scripts/scan.lua")),
            events: read("events", include_str!("scripts/events.lua")),
            tick: change_leases("tick", &[STATUS, include_str!("scripts/tick.lua")].concat()),
            status: read("status", &[STATUS, "return status()\n"].concat()),
            end_lapsed: change_leases(
                "end_lapsed",
                &[SESSION, STATUS, RESCORE, include_str!("scripts/end_lapsed.lua")].concat(),
            ),
            release: change_leases("release", &[SESSION, include_str!("scripts/release.lua")].concat()),
            reap: change("reap", &[SESSION, include_str!("scripts/reap.lua")].concat()),
            reconcile: change("reconcile", &[SESSION, include_str!("scripts/reconcile.lua")].concat()),
            forget_group: change(
                "forget_group",
                &[STATUS, include_str!("scripts/forget_group.lua")].concat(),
            ),
            beat_pulse: Arc::new(Script::new(
                "beat_pulse",
                &[&assembly.0, PULSE, include_str!("scripts/beat_pulse.lua")],
            )),
            due_groups: Arc::new(Script::new(
                "due_groups",
                &[&assembly.0, include_str!("scripts/due_groups.lua")],
            )),
            settle: change_leases("settle", include_str!("scripts/settle.lua")),
            due: read("due", include_str!("scripts/due.lua")),
            unreleased: read("unreleased", include_str!("scripts/unreleased.lua")),
        }
    }
}

#[cfg(feature = "test-clock")]
fn clock(test_clock: bool) -> &'static str {
    if test_clock { TEST_CLOCK } else { CLOCK }
}

#[cfg(not(feature = "test-clock"))]
fn clock(_: bool) -> &'static str {
    CLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn scripts_use_the_keys_outside_the_groups() {
        let text = StoreKeys::OneServer.text();
        let tagged = StoreKeys::Cluster.text();
        for key in [keys::PULSE, keys::DUE_GROUPS] {
            assert!(text.contains(&format!("'{key}'")), "{key}");
            assert!(tagged.contains(&format!("'{key}:{{' .. TAG .. '}}'")), "{key}");
            assert_eq!(keys::on_node(key, Some("7")), format!("{key}:{{7}}"));
        }
    }

    #[test]
    fn production_scripts_ignore_the_test_clock() {
        let scripts = Scripts::new(false, StoreKeys::OneServer);
        for script in [
            &scripts.join,
            &scripts.beat,
            &scripts.tick,
            &scripts.status,
            &scripts.members_of,
        ] {
            assert!(
                script.text().contains("'TIME'") && !script.text().contains("tenure:test"),
                "{}",
                script.name()
            );
        }
    }
}
