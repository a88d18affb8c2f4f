//! A Postgres server, with every operation on it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_testkit::postgres::{Server, USER};
use tenure_testkit::wait::until;
use tenure_testkit::{Availability, Process, have, own_test};

const SOON: Duration = Duration::from_secs(30);

/// The permanent children: without the backend of this query and those about to end.
fn pids_of_children(server: &Server) -> Vec<u32> {
    let staying = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker' \
                   AND (backend_type <> 'client backend' OR state LIKE 'active%' OR state LIKE 'idle in%')";
    let pids = server.sql(staying).unwrap();
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn runs(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

#[test]
fn starts_empty_on_a_port_of_its_own() {
    let (Some(one), Some(other)) = (Server::start(), Server::with(&["max_connections=7"])) else {
        return;
    };
    assert_ne!(one.port(), other.port());
    assert_eq!(
        one.url(),
        format!("postgres://{USER}@127.0.0.1:{}/postgres", one.port())
    );
    one.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    assert_eq!(one.sql("SELECT n, n * 2 FROM t ORDER BY n").unwrap(), "1|2\n2|4");
    let refusal = other.sql("SELECT n FROM t").unwrap_err().to_string();
    assert!(refusal.contains("relation \"t\" does not exist"), "{refusal}");
    assert_eq!(other.sql("SHOW max_connections").unwrap(), "7");
    assert_ne!(
        one.sql("SELECT usename FROM pg_stat_activity WHERE pid = pg_backend_pid()")
            .unwrap(),
        ""
    );
}

#[test]
fn databases_are_separate() {
    let Some(server) = Server::start() else { return };
    let urls = [server.database(), server.database()];
    assert_ne!(urls[0], urls[1]);
    let on = |url: &str, statement: &str| server.psql().args(["-d", url, "-c", statement]).output().unwrap();
    assert!(on(&urls[0], "CREATE TABLE t (n int)").status.success());
    assert!(on(&urls[0], "SELECT n FROM t").status.success());
    assert!(!on(&urls[1], "SELECT n FROM t").status.success());
}

#[test]
fn dropping_it_leaves_nothing_behind() {
    for is_killed in [false, true] {
        let Some(server) = Server::start() else { return };
        let (addr, dir, pid) = (server.addr(), server.process().dir().to_owned(), server.pid());
        let children = pids_of_children(&server);
        assert!(!children.is_empty());
        // A machine has few segments.
        let mut segments = vec![segment_of(&dir)];
        server.restart_empty();
        segments.push(segment_of(&dir));
        assert!(shared_memory().contains(&segments[1]));
        if is_killed {
            server.kill();
        }
        drop(server);
        assert!(TcpStream::connect(addr).is_err());
        assert!(!dir.exists());
        assert!(!runs(pid) && !children.iter().any(|pid| runs(*pid)));
        let left = shared_memory();
        assert!(!segments.iter().any(|segment| left.contains(segment)));
    }
}

/// The id of the segment of System V shared memory that a server with its data in `dir` uses.
fn segment_of(dir: &Path) -> u32 {
    let state = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap();
    let key_and_id = state.lines().nth(6).unwrap();
    key_and_id.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The ids of all segments of this machine.
fn shared_memory() -> Vec<u32> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let ids = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    ids.map(|id| id.parse().unwrap()).collect()
}

#[test]
fn only_committed_data_survives_a_kill() {
    let Some(server) = Server::start() else { return };
    let port = server.port();
    server.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
    let mut open = server
        .psql()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = open.stdin.take().unwrap();
    asked
        .write_all(b"BEGIN; INSERT INTO t VALUES (2) RETURNING n;\n")
        .unwrap();
    let mut answers = BufReader::new(open.stdout.take().unwrap());
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert_eq!(answer.trim(), "2");
    let children = pids_of_children(&server);
    server.kill();
    assert!(!children.iter().any(|pid| runs(*pid)));
    assert!(server.sql("SELECT 1").is_err());
    server.restart_with_data();
    assert_eq!(
        (server.port(), server.sql("SELECT n FROM t").unwrap().as_str()),
        (port, "1")
    );
    drop(asked);
    open.wait().unwrap();
    // Whether it was running, killed or terminated.
    server.restart_with_data();
    server.terminate();
    server.restart_with_data();
    assert_eq!(server.sql("SELECT n FROM t").unwrap(), "1");
    server.restart_empty();
    assert!(server.sql("SELECT n FROM t").is_err());
    assert_eq!(server.port(), port);
}

#[test]
fn all_processes_stop_while_paused() {
    let Some(server) = Server::start() else { return };
    server.sql("CREATE TABLE ticks (n int)").unwrap();
    // Busy in the server, so that only the pause can stop it.
    let endless = "DO $$ BEGIN LOOP INSERT INTO ticks VALUES (1); COMMIT; END LOOP; END $$";
    let mut busy = server
        .psql()
        .args(["-c", endless])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ticks = || {
        server
            .sql("SELECT count(*) FROM ticks")
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    until("it ticks", SOON, || ticks() > 10);
    let children = pids_of_children(&server);
    for _ in 0..2 {
        server.pause();
        assert!(
            children
                .iter()
                .chain([&server.pid()])
                .all(|pid| state(*pid) == Some('T'))
        );
    }
    // The kernel accepts the connection; it gets no reply.
    let mut waiting = TcpStream::connect(server.addr()).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    waiting.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap(); // an SSLRequest
    assert!(waiting.read(&mut [0]).is_err());
    server.resume();
    let resumed = ticks();
    until("it ticks again", SOON, || ticks() > resumed);
    server.pause();
    server.kill();
    assert!(!children.iter().any(|pid| runs(*pid)));
    server.restart_with_data();
    assert!(ticks() >= resumed);
    busy.wait().unwrap();
    server.pause(); // dropped while it is paused
}

#[test]
fn terminate_ends_a_paused_server() {
    let Some(server) = Server::start() else { return };
    server.pause();
    server.terminate();
    assert!(!server.process().is_running());
    server.restart_with_data();
    assert_eq!(server.sql("SELECT 1").unwrap(), "1");
}

/// A helper process, not a test: starts a server, pauses it, reports its pids, and waits to be killed.
#[test]
fn a_process_with_a_paused_server() {
    let Ok(told) = std::env::var("TESTKIT_TELL") else {
        return;
    };
    let server = Server::start().unwrap();
    let mut pids = pids_of_children(&server);
    pids.push(server.pid());
    server.pause();
    let dir = server.process().dir().to_str().unwrap();
    fs::write(format!("{told}.new"), format!("{dir}\n{pids:?}")).unwrap();
    fs::rename(format!("{told}.new"), told).unwrap();
    until("this process is killed", 3 * SOON, || false);
}

#[test]
fn a_killed_test_leaves_no_paused_server_behind() {
    if have("postgres").or_skip().is_none() {
        return;
    }
    let process = Process::spawn("a test", |dir| {
        let mut command = own_test(module_path!(), "a_process_with_a_paused_server");
        command.env("TESTKIT_TELL", dir.join("told"));
        command
    })
    .unwrap();
    let told = process.dir().join("told");
    let is_told = || Ok(fs::metadata(&told).map(drop)?);
    process.wait_ready(2 * SOON, is_told).unwrap();
    let told = fs::read_to_string(&told).unwrap();
    let (dir, pids) = told.split_once('\n').unwrap();
    let pids = pids.trim_matches(['[', ']']).split(", ");
    let pids: Vec<u32> = pids.map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() > 3 && pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    // The killed process cannot free it, and its guard removes the file that names it.
    let segment = segment_of(Path::new(dir)).to_string();
    process.kill();
    until("nothing of the server runs", SOON, || {
        !pids.iter().any(|pid| runs(*pid))
    });
    let _ = Command::new("ipcrm").args(["-m", &segment]).status();
    until("its directory is gone", SOON, || !Path::new(dir).exists());
}

#[test]
fn it_starts_where_it_is_installed() {
    let found = matches!(have("postgres"), Availability::Found(_));
    assert_eq!(found, Server::start().is_some());
}
