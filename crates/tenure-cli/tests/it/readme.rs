//! The tour of the README: its blocks run in one shell, and print what it shows.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::port::Port;
use tenure_testkit::{Process, have, http, wait};

use crate::support::{self, Lateness, SOON, said};

const README: &str = include_str!("../../../../README.md");
/// Where the README's daemon listens; a test takes a port of its own.
const ADDRESS: &str = "127.0.0.1:7717";
/// What the README says about how long the claims of the dead stay, and what a busy machine may add.
const BURST: Duration = Duration::from_millis(250);
const ALLOWANCE: Duration = Duration::from_secs(1);

/// The blocks that are marked as parts of the tour.
fn tour() -> Vec<String> {
    let parts = README.split("```sh tour\n").skip(1);
    parts
        .map(|part| part.split("```").next().expect("a split has a first part").to_owned())
        .collect()
}

/// The lines of the tables in the README. The output of `why` is compared by its facts.
fn printed() -> Vec<String> {
    let parts = README.split("```text\n").skip(1);
    let blocks = parts.map(|part| part.split("```").next().expect("a split has a first part"));
    let tables = blocks.filter(|block| !block.starts_with("key "));
    tables.flat_map(str::lines).map(str::to_owned).collect()
}

/// A line without what differs from run to run: numbers, times, and the width of columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(c == '0' && shape.ends_with('0')) {
            shape.push(c);
        }
    }
    shape.replace("0.0s", "0s").replace("0ms", "0s")
}

/// A reader with a shell: runs one block after another, each when told to.
struct Reader {
    shell: Process,
    addr: SocketAddr,
    next: usize,
    _port: Port,
}

impl Reader {
    fn sit_down(bash: &Path) -> Self {
        let port = Port::reserve();
        let addr = port.addr();
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_tenure"));
        let mut script = String::new();
        for (nth, block) in tour().iter().enumerate() {
            // The first block starts the daemon; to a daemon, TENURE_STORE is the store that it serves.
            if nth == 1 {
                script.push_str(&format!("export TENURE_STORE=http://{addr}\n"));
            }
            script.push_str(&format!("until [ -e go-{nth} ]; do sleep 0.01; done\n"));
            script.push_str(&block.replace(ADDRESS, &addr.to_string()));
        }
        script.push_str("echo; echo the end\nwait\n");
        let shell = Process::spawn("the README's shell", |dir| {
            let mut path = binary
                .parent()
                .expect("the binary lies in a folder")
                .as_os_str()
                .to_owned();
            path.push(":");
            path.push(std::env::var_os("PATH").unwrap_or_default());
            fs::write(dir.join("tour"), script).expect("the directory is ours");
            let mut command = support::tenure();
            let mut shell = Command::new(bash);
            for (name, value) in command.current_dir(dir).get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            shell.arg("tour").current_dir(dir);
            shell.env("PATH", path).env("TENURE_LISTEN", addr.to_string());
            shell
        })
        .expect("bash can be started");
        Self {
            shell,
            addr,
            next: 0,
            _port: port,
        }
    }

    /// Types the next block.
    fn go_on(&mut self) {
        fs::write(self.shell.dir().join(format!("go-{}", self.next)), "").expect("the directory is ours");
        self.next += 1;
    }

    /// Types the next block and waits until it has shown this.
    fn go_on_until(&mut self, shown: &str) {
        self.go_on();
        said(&self.shell, shown);
    }

    /// Ctrl-C, to the command that is running in the foreground.
    fn interrupt(&self, command: &str) {
        let shell = self.shell.pid().expect("the shell runs");
        let child = children(shell)
            .into_iter()
            .find(|pid| command_line(*pid).contains(command))
            .unwrap_or_else(|| panic!("{command} does not run: {}", self.shell.log_tail()));
        let pid = Pid::from_raw(i32::try_from(child).expect("a process id")).expect("a process id is not 0");
        kill_process(pid, Signal::INT).expect("it runs");
    }

    /// The lines that show this.
    fn lines(&self, what: &str) -> Vec<String> {
        let log = self.shell.log();
        log.lines()
            .filter(|line| line.contains(what))
            .map(str::to_owned)
            .collect()
    }
}

fn children(parent: u32) -> Vec<u32> {
    let folders = fs::read_dir("/proc").expect("the system tells of its processes");
    let pids = folders.filter_map(|folder| folder.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// What look-ups said over time.
#[derive(Debug, Default)]
struct Lookups {
    alive: usize,
    dead: usize,
    last: Option<Instant>,
    longest_hole: Duration,
}

impl Lookups {
    fn look(&mut self, addr: SocketAddr) {
        let path = "/v1/groups/ingest/registries/devices/claims/cam-17";
        let (_, answer) = http::get(addr, path).expect("the daemon answers");
        let now = Instant::now();
        let hole = self.last.replace(now).map(|last| now - last);
        self.longest_hole = self.longest_hole.max(hole.unwrap_or_default());
        if answer.contains("\"alive\":true") {
            assert_eq!(self.dead, 0, "the dead came back");
            self.alive += 1;
        } else if answer.contains("\"alive\":false") {
            self.dead += 1;
        }
    }
}

/// When an event of this kind happened, from the line that shows it.
fn time_of(line: &str) -> Timestamp {
    let time = line.split_whitespace().next().expect("a line begins with its time");
    time.parse().unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn the_tour_shows_what_it_says() {
    let Some(bash) = have("bash").or_skip() else { return };
    assert_eq!(tour().len(), 8, "the README has another tour than this test");
    let mut reader = Reader::sit_down(&bash);
    reader.go_on_until("serving");
    reader.go_on_until("cam-18  new      gw-1   gw-1@");
    reader.go_on_until("cam-17  gw-1   yes    gw-1@");

    reader.go_on();
    let (mut lookups, lateness) = (Lookups::default(), Lateness::watch());
    let evicted = "  evicted  ";
    wait::until("the claims are evicted", SOON, || {
        lookups.look(reader.addr);
        !reader.lines(evicted).is_empty()
    });
    let late = lateness.so_far();
    let (lapsed, evicted) = (reader.lines("  lapsed  "), reader.lines(evicted));
    assert_eq!((lapsed.len(), evicted.len()), (1, 1), "{}", reader.shell.log());
    assert!(lapsed[0].contains("gw-1@"), "{lapsed:?}");
    assert!(
        evicted[0].contains("gw-1@") && evicted[0].contains("devices=2"),
        "{evicted:?}"
    );
    let later = Duration::try_from(time_of(&evicted[0]).duration_since(time_of(&lapsed[0]))).expect("it comes later");
    eprintln!("MEASURED evicted {later:?} after the lapse; {lookups:?}");
    // A stall of the machine delays the janitor.
    assert!(
        later >= BURST && later < BURST + ALLOWANCE + late,
        "{later:?}, {late:?} late"
    );
    // A machine that stood still for the whole quarter of a second may have missed it.
    assert!(lookups.alive > 0, "{lookups:?}");
    assert!(lookups.dead > 0 || lookups.longest_hole > BURST / 2, "{lookups:?}");

    reader.interrupt("tenure events");
    reader.go_on_until("now: not owned");
    let log = reader.shell.log();
    let why = &log[log
        .rfind("key devices/cam-17 in group ingest")
        .unwrap_or_else(|| panic!("{log}"))..];
    assert!(
        why.contains("which had ended (lapsed)") && why.contains("now: not owned"),
        "{why}"
    );

    reader.go_on_until("leases are granted immediately");
    // One of the two has it, with a token, and the other one is refused.
    reader.go_on_until("report  held     worker-");
    said(&reader.shell, "report  granted  worker-");
    said(&reader.shell, "lease \"report\" not acquired: worker-");
    reader.go_on_until("the end");
    let listed = reader.lines("report  worker-");
    assert!(!README.contains("curl"), "the README needs no curl");
    let log: Vec<_> = reader.shell.log().lines().map(shape).collect();
    for line in printed() {
        assert!(log.contains(&shape(&line)), "{line:?} was not printed: {log:#?}");
    }
    assert_eq!(listed.len(), 1, "{}", reader.shell.log());
}

/// The lines of the README, word for word but for the address.
async fn from_rust(url: &str) -> tenure::Result<()> {
    use tenure::{Acquire, JoinOptions, Tenure, Verdict};

    let tenure = Tenure::connect(url).await?;
    let membership = tenure.group("ingest")?.join(JoinOptions::named("gw-1")?).await?;
    let devices = membership.registry("devices")?;
    devices.claim("cam-17").await?;
    if membership.verdict() == Verdict::Held {
        // work; no I/O was needed to know
    }
    if let Acquire::Granted(report) = membership.leases().acquire("report").await? {
        // no other member has it; pass `report.token()` to the storage you write to
        report.release().await?;
    }
    membership.leave().await?;
    Ok(())
}

#[test]
fn its_rust_is_what_this_file_compiles_and_runs() {
    let block = README
        .split("```rust,ignore\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let printed = block
        .expect("the README has Rust")
        .replace(&format!("\"http://{ADDRESS}\""), "url");
    let source = include_str!("readme.rs");
    let compiled = source
        .split("tenure::Result<()> {\n")
        .nth(1)
        .and_then(|rest| rest.split("    Ok(())").next());
    let trimmed = |text: &str| text.lines().map(str::trim).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(trimmed(&printed), trimmed(compiled.expect("it is above")));

    let daemon = support::Daemon::start(&["--store", "memory:"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(from_rust(&daemon.url())).expect("it runs");
    let page = daemon.run(&["events", "--group", "ingest", "--json"]).json();
    let kinds: Vec<_> = page["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| &event["type"])
        .collect();
    // A claim makes no event, and its eviction may come after this.
    let told = ["joined", "lease_granted", "lease_released", "left"];
    assert!(
        kinds.len() >= told.len() && kinds.iter().zip(told).all(|(kind, told)| *kind == told),
        "{kinds:?}"
    );
}
