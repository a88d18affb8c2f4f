//! A ledger that is away is said once: in the log, in a metric, and in the notes of readiness.

use tenure_testkit::{postgres, valkey, wait};

use crate::support::{Daemon, SOON};

const ROSTERS: usize = 20;

fn metrics(daemon: &Daemon) -> String {
    daemon.text("GET", "/metrics", "").1
}

/// The warnings about rosters and their ledger, except those of a stall of the machine or of the hot store.
fn warnings(daemon: &Daemon) -> Vec<String> {
    let log = daemon.process.log();
    let names = |line: &str| line.contains("ledger") || line.contains("roster");
    let stalled = |line: &str| line.contains("the loop was paused") || line.contains("mirrors are unreachable");
    let about = |line: &&str| names(line) && !stalled(line);
    let warned = log
        .lines()
        .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
    warned.filter(about).map(str::to_owned).collect()
}

/// For how long the sweep of the first roster has not been done.
fn late_for(daemon: &Daemon, sweep: &str) -> f64 {
    let name = format!("tenure_roster_sweep_age_seconds{{roster=\"r-0\",sweep=\"{sweep}\"}} ");
    let metrics = metrics(daemon);
    let age = metrics.lines().find_map(|line| line.strip_prefix(&name));
    age.map_or(0.0, |age| age.parse().unwrap())
}

#[test]
fn absent_ledger_at_start_is_warned_of_once() {
    // Nothing listens there.
    let daemon = Daemon::start(&["--store", "memory:", "--ledger", "postgres://nobody@127.0.0.1:1/none"]);
    wait::until("the metric says so", SOON, || {
        metrics(&daemon).contains("tenure_ledger_up 0\n")
    });
    let told = || {
        let warned = warnings(&daemon);
        warned
            .iter()
            .filter(|line| line.contains("the ledger does not answer"))
            .count()
    };
    wait::until("a note and a warning say so", SOON, || {
        let (status, ready) = daemon.http("GET", "/readyz", "");
        assert_eq!((status, &ready["ready"]), (200, &true.into()), "{ready}");
        ready["notes"].to_string().contains("ledger: ") && told() > 0
    });
    assert_eq!(told(), 1, "{:?}", warnings(&daemon));
}

#[test]
fn lost_ledger_of_many_rosters_is_warned_of_once() {
    let (Some(valkey), Some(postgres)) = (
        valkey::Server::start(valkey::Flavour::Valkey),
        postgres::Server::start(),
    ) else {
        return;
    };
    let daemon = Daemon::start(&["--store", &valkey.url(), "--ledger", &postgres.database()]);
    for n in 0..ROSTERS {
        // The daemon is ready before the schema of its ledger is.
        wait::until("the ledger takes the provider", SOON, || {
            daemon.http("PUT", &format!("/v1/rosters/r-{n}/providers/ann"), "{}").0 < 300
        });
    }
    let notes = || daemon.http("GET", "/readyz", "").1["notes"].clone();
    wait::until("every mirror is believed", SOON, || {
        notes().is_null() || notes() == serde_json::json!([])
    });
    assert!(metrics(&daemon).contains("tenure_ledger_up 1\n"));
    let before = warnings(&daemon).len();
    postgres.kill();
    wait::until("the metric says so", SOON, || {
        metrics(&daemon).contains("tenure_ledger_up 0\n")
    });
    // Each sweep that needs the ledger alone has failed for every roster by then.
    wait::until("sweeps are late", SOON, || late_for(&daemon, "expiry") > 11.0);
    let warned = warnings(&daemon).split_off(before);
    let is_lost = |line: &String| line.contains("the ledger does not answer");
    let lost = warned.iter().position(is_lost).expect("a warning names the ledger");
    // Sweeps that fail before the poll has failed twice warn too; none does afterwards.
    assert!(lost < ROSTERS && lost + 1 == warned.len(), "{warned:#?}");
    postgres.restart_with_data();
    wait::until("it is back", SOON, || metrics(&daemon).contains("tenure_ledger_up 1\n"));
    assert!(daemon.process.log().contains("the ledger answers again"));
}

/// Writes of every kind while commits wait for a standby that there is not: 503 and nothing else. Beats and reads are served.
#[test]
fn commits_that_wait_for_a_standby_stop_no_beat() {
    let (Some(valkey), Some(postgres)) = (
        valkey::Server::start(valkey::Flavour::Valkey),
        postgres::Server::start(),
    ) else {
        return;
    };
    let daemon = Daemon::start(&["--store", &valkey.url(), "--ledger", &postgres.database()]);
    let of = |path: &str| format!("/v1/rosters/care{path}");
    for n in 0..10 {
        wait::until("the ledger takes the provider", SOON, || {
            daemon.http("PUT", &of(&format!("/providers/p{n}")), "{}").0 < 300
        });
        assert_eq!(daemon.http("POST", &of(&format!("/providers/p{n}/online")), "").0, 200);
    }
    let standby = |name: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        postgres.sql(&set).expect("a setting");
        postgres.sql("SELECT pg_reload_conf()").expect("a reload");
    };
    let put = |capacity: u32| {
        let spec = format!("{{\"capacity\": {capacity}}}");
        daemon.http("PUT", &of("/providers/p9"), &spec).0
    };
    standby("none_of_ours");
    // The reload reaches each of the server's processes at a time of its own.
    let mut capacity = 1;
    wait::until("a commit waits", SOON, || {
        capacity += 1;
        put(capacity) == 503
    });
    let write = |n: u32| match n % 6 {
        0 => daemon.http("PUT", &of(&format!("/providers/new{n}")), "{}").0,
        1 => {
            daemon
                .http(
                    "POST",
                    &of("/engagements"),
                    &format!("{{\"id\": \"e{n}\", \"provider\": \"p1\"}}"),
                )
                .0
        }
        2 => {
            daemon
                .http("POST", &of("/reserve"), &format!("{{\"engagement\": \"r{n}\"}}"))
                .0
        }
        3 => daemon.http("POST", &of("/providers/p2/deactivate"), "").0,
        4 => daemon.http("POST", &of("/providers/p3/offline"), "").0,
        _ => daemon.http("DELETE", &of("/providers/p4"), "").0,
    };
    let count = 120 * wait::soak_factor();
    std::thread::scope(|scope| {
        let (write, turns) = (&write, 12);
        let writers: Vec<_> = (0..turns)
            .map(|turn| scope.spawn(move || (turn..count).step_by(turns as usize).map(write).collect::<Vec<_>>()))
            .collect();
        let mut served = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            assert_eq!(daemon.http("POST", &of("/providers/p0/heartbeat"), "").0, 200);
            assert_eq!(daemon.http("GET", &of("/providers/p5"), "").0, 200);
            served += 1;
        }
        let statuses: Vec<u16> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        println!(
            "{} writes without an acknowledgement, {served} beats and {served} reads",
            statuses.len()
        );
        assert!(served > 20, "{served} beats and reads");
        assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
    });
    standby("");
    wait::until("writes are acknowledged", SOON, || put(1) < 300);
}
